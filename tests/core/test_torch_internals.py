"""What is taken of PyTorch beside its public interface does what it says."""

import torch


def test_differences_are_added_as_written():
    from dml.core.torch_internals import add_differences

    shapes = [(3, 4), (5,), ()]
    sums, minuends, subtrahends = ([torch.randn(s) for s in shapes] for _ in range(3))
    rows = zip(sums, minuends, subtrahends, strict=True)
    expected = [total + (first - second) * 0.3 for total, first, second in rows]
    add_differences(sums, minuends, subtrahends, 0.3)
    for total, wanted in zip(sums, expected, strict=True):
        torch.testing.assert_close(total, wanted)


def test_a_function_is_not_compiled():
    from dml.core.torch_internals import not_compiled

    def compiling():
        return torch.compiler.is_compiling()

    def outer():
        return not_compiled(compiling)(), compiling()

    assert torch.compile(outer, backend="eager")() == (False, True)
