"""Tensors that claim to be on `cuda:0` and are computed on the CPU.

What a GPU would refuse is refused: tensors of two devices in one operation, `.numpy()`, products of
integers. What would make the host wait is counted (`waits`). Numbers are those of the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from tests.pretended_cuda.waits import note_wait

CUDA = torch.device("cuda", 0)
aten = torch.ops.aten

COPIES = {aten._to_copy.default, aten.copy_.default, aten.copy.default}
INDEX = {aten.index.Tensor}
INDEX_PUT = {aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default}
TAKES_CPU_SCALARS = {aten.fill_.Tensor, aten.masked_fill.Tensor, aten.masked_fill_.Tensor}
# The host must know a value, or the size of the result.
WAITING = {
    *("_local_scalar_dense", "equal", "is_nonzero", "nonzero", "masked_select", "_unique"),
    *("_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive", "bincount"),
    *("histc", "multinomial", "_linalg_check_errors"),
}
FLOAT_ONLY = {"mm", "addmm", "addmm_", "bmm", "baddbmm", "mv", "addmv", "dot", "_cdist_forward"}
FLOAT_ONLY_BEGINNINGS = ("_upsample", "upsample_bi", "upsample_li", "grid_sampler")


class OnCuda(Tensor):
    """A tensor of the CPU that claims to be on `cuda:0`.

    To torch's C++ it is one of the CPU: autograd would ask the driver for the streams of a GPU.
    """

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})

    device = property(lambda self: CUDA)  # type: ignore[assignment]
    is_cuda = property(lambda self: True)  # type: ignore[assignment]
    is_cpu = property(lambda self: False)  # type: ignore[assignment]

    def get_device(self) -> int:
        return 0

    def on_cpu(self) -> Tensor:
        """Returns the same memory as a tensor of the CPU, which no program may do."""
        with torch._C._DisableTorchDispatch():
            return Tensor._make_subclass(Tensor, self.detach())

    def new_tensor(self, data: Any, **options: Any) -> Tensor:
        return torch.tensor(data, **{"dtype": self.dtype, "device": CUDA, **options})

    def tolist(self) -> Any:
        note_wait("tolist")
        return self.on_cpu().tolist()

    def numpy(self, *, force: bool = False) -> Any:
        if not force:
            raise TypeError("can't convert cuda:0 device type tensor to numpy; use Tensor.cpu()")
        return self.cpu().numpy()

    def __reduce_ex__(self, protocol: Any) -> Any:  # checkpoints are read on the CPU
        note_wait("save")
        return self.on_cpu().__reduce_ex__(protocol)

    def __deepcopy__(self, memo: Any) -> OnCuda:
        copied = self.detach().clone().requires_grad_(self.requires_grad)
        if getattr(self, "_is_param", False):
            copied._is_param = True  # type: ignore[attr-defined]
        return memo.setdefault(id(self), copied)


class EveryOperation(TorchDispatchMode):
    """Sees what has no tensor of the device among its arguments yet: factories and copies."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})


class _State:
    """What the operations share."""

    leaving = False  # `Tensor.to` asks for the CPU
    random: Tensor | None = None  # state of the device's generator


def run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """One operation: checked as a GPU would, its waits counted, computed on the CPU."""
    flat, spec = tree_flatten((args, kwargs))
    there = [x for x in flat if isinstance(x, OnCuda)]
    asked = kwargs.get("device")
    if asked is None and not there:
        return func(*args, **kwargs)
    # If `Tensor.to` does not ask, C++ does: for the device of a tensor, the CPU to it.
    on_cuda = (bool(there) and not _State.leaving) or (
        asked is not None and torch.device(asked).type == "cuda"
    )
    if func in COPIES:
        _note_copy(func, args, kwargs, on_cuda)
    elif there:
        name = func._schema.name.partition("::")[2]
        here = [x for x in flat if isinstance(x, Tensor) and not isinstance(x, OnCuda)]
        if here:
            _refuse_mix(func, name, args, there, here)
        _refuse_type(name, there[0])
        _note_waiting(func, name, args, kwargs)
    args, kwargs = tree_unflatten([_for_cpu(x) for x in flat], spec)
    drawing = on_cuda and torch.Tag.nondeterministic_seeded in func.tags
    with torch._C._DisableTorchDispatch():
        out = _draw(func, args, kwargs) if drawing else func(*args, **kwargs)
        given = {id(x) for x in flat}
        return tree_map(lambda x: _placed(x, on_cuda, given), out)


def _for_cpu(x: Any) -> Any:
    return torch.device("cpu") if isinstance(x, torch.device) and x.type == "cuda" else x


def _placed(x: Any, on_cuda: bool, given: set[int]) -> Any:
    """Returns a result as a tensor of its device; what is changed in place stays where it is."""
    if not isinstance(x, Tensor) or id(x) in given or isinstance(x, OnCuda) == on_cuda:
        return x
    return Tensor._make_subclass(OnCuda if on_cuda else Tensor, x)


def _draw(func: Any, args: Any, kwargs: Any) -> Any:
    """Random numbers of the device come from a generator of its own."""
    outside = torch.get_rng_state()
    if _State.random is not None:
        torch.set_rng_state(_State.random)
    try:
        return func(*args, **kwargs)
    finally:
        _State.random = torch.get_rng_state()
        torch.set_rng_state(outside)


def _refuse_mix(func: Any, name: str, args: Any, there: list[OnCuda], here: list[Tensor]) -> None:
    """Raises RuntimeError where torch would: tensors of the CPU may be scalars, or indices."""
    if func in INDEX | INDEX_PUT:
        if any(isinstance(x, Tensor) and not isinstance(x, OnCuda) for x in args[1]):
            note_wait("index on the CPU")
        # In a backward pass C++ makes zeros for the values, on the CPU where it believes all to be.
        backward = torch._C._current_graph_task_id() >= 0
        value = args[2:3] if func in INDEX_PUT and not backward else ()
        wrong = [args[0], *(x for x in value if isinstance(x, Tensor) and x.ndim)]
    elif torch.Tag.pointwise in func.tags or func in TAKES_CPU_SCALARS:
        written = args[:1] if func._schema.is_mutable else ()
        wrong = [*written, *(x for x in here if x.ndim)]
    else:
        wrong = here
    if any(isinstance(x, Tensor) and not isinstance(x, OnCuda) for x in wrong):
        sizes = [tuple(x.shape) for x in there], [tuple(x.shape) for x in here]
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but {name} got {sizes[0]} on cuda:0 "
            f"and {sizes[1]} on the CPU"
        )


def _refuse_type(name: str, first: OnCuda) -> None:
    floating = first.dtype.is_floating_point or first.dtype.is_complex
    if not floating and (name in FLOAT_ONLY or name.startswith(FLOAT_ONLY_BEGINNINGS)):
        raise RuntimeError(f'"{name}_cuda" not implemented for {first.dtype}')


def _note_copy(func: Any, args: Any, kwargs: Any, on_cuda: bool) -> None:
    """Counts a copy between the devices, unless it goes to the GPU and the host goes on at once.

    A copy from ordinary memory with `non_blocking` does not wait for the device either: CUDA
    copies the numbers aside first. No copy to the CPU may be `non_blocking`: its numbers are wrong
    until the host waits for the device.
    """
    if func is aten._to_copy.default:
        to_cuda, source, free = on_cuda, args[0], kwargs.get("non_blocking", False)
    else:
        to_cuda, source = isinstance(args[0], OnCuda), args[1]
        free = kwargs.get("non_blocking", len(args) > 2 and args[2])
    if to_cuda != isinstance(source, OnCuda) and source.numel() and not (to_cuda and free):
        assert not free
        note_wait("copy to the GPU" if to_cuda else "copy to the CPU")


def _note_waiting(func: Any, name: str, args: Any, kwargs: Any) -> None:
    if func in INDEX | INDEX_PUT:
        masks = [x for x in args[1] if isinstance(x, OnCuda) and x.dtype == torch.bool]
        value = args[2] if func in INDEX_PUT else None
        number = value is not None and value.numel() == 1 and not isinstance(value, OnCuda)
        if masks and not (number and len(args[1]) == 1):  # that one is a masked_fill
            note_wait("mask as index")
        elif number and not masks:
            note_wait("number put by index")  # copied to the device first
    elif name == "repeat_interleave":
        if kwargs.get("output_size") is None:
            note_wait(name)
    elif name in WAITING:
        note_wait(name)
        if name == "bincount":  # looks for the smallest and for the largest number
            note_wait(name)


_to, _one_hot = Tensor.to, torch.nn.functional.one_hot


def to(self: Tensor, *args: Any, **options: Any) -> Tensor:
    """`Tensor.to` by the device that a tensor claims; C++ would see no difference."""
    other = args[0] if args and isinstance(args[0], Tensor) else options.pop("other", None)
    if other is not None:
        args = (other.device, other.dtype, *args[1:])
    copy = options.pop("copy", False) or (len(args) == 4 and args[3])
    device, dtype, free, layout = torch._C._nn._parse_to(*args[:3], **options)
    if device is None or device.type == self.device.type:
        kept: dict[str, Any] = {} if layout is None else {"memory_format": layout}
        return _to(self, dtype=dtype or self.dtype, non_blocking=free, copy=copy, **kept)
    with _leaves(device.type == "cpu"):
        return aten._to_copy(  # type: ignore[no-any-return]
            self, dtype=dtype, device=device, non_blocking=free, memory_format=layout
        )


@contextmanager
def _leaves(to_cpu: bool) -> Iterator[None]:
    _State.leaving = to_cpu
    try:
        yield
    finally:
        _State.leaving = False


def made_on(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Returns `torch.tensor` or the like, whose copy to the device is seen by us."""

    def make_on(
        data: Any, *, device: Any = None, requires_grad: bool = False, **more: Any
    ) -> Tensor:
        made = make(data, **more)
        if device is not None or requires_grad:
            made = made.to(torch.device(made.device if device is None else device))
            made = made.detach().requires_grad_(requires_grad)
        return made

    return make_on


def one_hot(x: Tensor, num_classes: int = -1) -> Tensor:
    """`one_hot`, which on a GPU does not compare labels with the number of classes."""
    if not isinstance(x, OnCuda) or num_classes < 0:
        return _one_hot(x, num_classes)
    zeros = torch.zeros(*x.shape, num_classes, dtype=x.dtype, device=CUDA)
    return zeros.scatter_(-1, x.unsqueeze(-1), 1)


def random_state(*device: Any) -> Tensor:
    """The state of the device's generator."""
    return torch.get_rng_state() if _State.random is None else _State.random.clone()


def set_random_state(state: Tensor | None, *device: Any) -> None:
    """Sets the state of the device's generator; None: that of the CPU's at the first draw."""
    _State.random = None if state is None else state.clone()
