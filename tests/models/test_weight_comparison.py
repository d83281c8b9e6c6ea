import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from dml.core.errors import UserError
from dml.models.small_cnn import SmallCNN
from dml.models.weight_comparison import compare_files
from tests.commands import prepare

STATE = {"conv.weight": torch.arange(6.0).view(2, 3), "conv.bias": torch.tensor([0.5, -1.0])}


@pytest.fixture
def write(tmp_path):
    """Writes a state under a name, and returns the path."""

    def write_state(name, state):
        path = tmp_path / name
        if path.suffix == ".safetensors":
            save_file(state, path)
        elif path.suffix == ".npz":
            np.savez(path, **{key: value.numpy() for key, value in state.items()})
        else:
            torch.save(state, path)
        return str(path)

    return write_state


def lines_of(first, second):
    return list(compare_files(first, second).describe())


@pytest.mark.parametrize("name", ["b.pth", "b.safetensors", "b.npz"])
def test_the_same_tensors_in_another_format_are_equal(write, name):
    first, second = write("a.pth", STATE), write(name, STATE)
    assert lines_of(first, second)[:2] == [
        "2 tensors compared, 2 of them equal bit for bit",
        "largest absolute difference: 0",
    ]


@pytest.mark.parametrize("prefix", ["module.", "model.", "base_model.", "backbone."])
def test_names_are_those_of_the_loader_without_classifier(write, prefix):
    other = {f"{prefix}{name}": value for name, value in STATE.items()}
    other |= {f"{prefix}fc.weight": torch.ones(3, 2), f"{prefix}fc.bias": torch.ones(3)}
    with_other = STATE | {"last_linear.weight": torch.zeros(4, 2)}
    lines = lines_of(write("a.pth", with_other), write("b.pth", {"state_dict": other}))
    assert lines == [
        "2 tensors compared, 2 of them equal bit for bit",
        "largest absolute difference: 0",
        "only in the first: none",
        "only in the second: none",
        "other shapes: none",
        "left out as a classifier: last_linear.weight, fc.weight, fc.bias",
    ]


def test_equal_values_of_another_type_are_not_equal_bit_for_bit(write):
    other = STATE | {"conv.weight": STATE["conv.weight"].half()}
    assert lines_of(write("a.pth", STATE), write("b.pth", other))[:2] == [
        "2 tensors compared, 1 of them equal bit for bit",
        "largest absolute difference: 0",
    ]


@pytest.mark.parametrize("separator", [".", "/"])
def test_a_classifier_is_a_whole_module(write, separator):
    kept = ["head.norm.weight", "fc_norm.weight", "block.head.weight", "classifier.1.weight"]
    left_out = ["head.weight", "head.fc.bias", "head_dist.weight", "classifier.bias"]
    names = [name.replace(".", separator) for name in kept + left_out]
    state = {name: torch.ones(1) for name in names}
    found = compare_files(write("a.npz", state), write("b.npz", state))
    assert found.classifiers == names[len(kept) :]
    assert found.compared == found.equal == len(kept)


def test_the_largest_difference_is_that_of_all_values(write):
    other = {
        "conv.weight": STATE["conv.weight"] + 1e-3,
        "conv.bias": torch.tensor([[0.5, -1.25]]),
        "more": torch.zeros(1),
        "z": torch.full((2,), 1e-3),
    }
    less = STATE | {
        "shape": torch.zeros(2, 2),
        "first": torch.zeros(1),
        "z": torch.zeros(2),
    }
    lines = lines_of(write("a.pth", less), write("b.pth", other | {"shape": torch.zeros(4)}))
    assert lines == [
        "3 tensors compared, 0 of them equal bit for bit",
        "largest absolute difference: 0.25 in conv.bias",
        "only in the first: first",
        "only in the second: more",
        "other shapes: shape [2, 2] and [4]",
        "left out as a classifier: none",
    ]


@pytest.mark.parametrize(
    ("value", "largest"), [(torch.nan, torch.inf), (torch.inf, torch.inf), (0.5, 0.0)]
)
def test_values_that_are_no_numbers_differ_from_numbers(write, value, largest):
    other = {"conv.bias": torch.tensor([value, -1.0])}
    assert compare_files(write("a.pth", STATE), write("b.pth", other)).largest == largest
    again = compare_files(write("b.pth", other), write("c.pth", other))
    assert (again.largest, again.equal) == (0.0, 1)


def test_a_difference_in_float64_is_seen_below_the_precision_of_float32(write):
    first = {"w": torch.tensor([1.0], dtype=torch.float64)}
    second = {"w": torch.tensor([1.0 + 1e-12], dtype=torch.float64)}
    assert 0 < compare_files(write("a.pth", first), write("b.pth", second)).largest < 2e-12


def test_the_command_prints_the_comparison(write, capsys):
    first, second = write("a.pth", STATE), write("b.npz", STATE | {"conv.bias": torch.zeros(2)})
    assert prepare(["weights", "--compare", first, second]) == 0
    assert "largest absolute difference: 1 in conv.bias" in capsys.readouterr().out
    assert prepare(["weights", "--compare", first, write("c.pth", {"x": torch.ones(1)})]) == 1
    assert "have no tensor in common; the first has conv.weight" in capsys.readouterr().err
    torch.save(SmallCNN(), first)
    assert prepare(["weights", "--compare", first, second]) == 1
    error = capsys.readouterr().err
    assert "also holds" in error
    assert len(error.splitlines()) == 1
    with pytest.raises(UserError, match="is not a file"):
        compare_files("absent.pth", second)
    np.savez(second, a=np.array([{}], dtype=object))
    assert prepare(["weights", "--compare", second, second]) == 1
    assert "not an .npz file of numbers" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["cub", "--compare", "a", "b"], ["weights", "--compare", "a", "b", "--list"]]
)
def test_a_comparison_is_of_weights_alone(words, capsys):
    assert prepare(words) == 2
    assert capsys.readouterr().err.startswith("error: --compare")
