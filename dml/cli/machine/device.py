"""Whether the GPU, or else the processor, computes what training needs."""

from __future__ import annotations

import copy
import os
import platform
from pathlib import Path

import torch
from torch import Tensor, nn

from dml.cli.machine.outcome import Outcome
from dml.losses import MeanFieldContrastiveLoss
from dml.models.embedder import Embedder
from dml.models.small_cnn import SmallCNN
from dml.training.device import autocast, device_name, resolve_device, set_precision

DRIVER = Path("/proc/driver/nvidia/version")
CLASSES, PER_CLASS, SIDE, DIMENSIONS = 4, 8, 32, 16  # of the step that is compared
SIZE = 256  # rows and columns of the product that is compared
# Largest relative errors. Sums of 256 products of float32 have one of 1e-6; those of TF32 and
# bfloat16, with 10 and 7 bits of each factor, 1e-3 and 1e-2.
TOLERANCES = {"fp32": 2e-5, "tf32": 5e-3, "bf16": 5e-2}
STEP_TOLERANCE = 2e-3  # of loss and gradients
GET_TORCH = "install a PyTorch for the CUDA version of the driver (nvidia-smi shows it)"


def try_machine() -> Outcome:
    """Returns processor, memory and system."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    processor = device_name(torch.device("cpu"))
    load = os.getloadavg()[0]
    return Outcome(
        f"{platform.system()} {platform.machine()}, {processor}, {memory:.0f} GB memory, "
        f"load {load:.1f}"
    )


def try_gpu() -> Outcome:
    """Returns the GPUs; a driver whose GPU torch does not see is a failure."""
    if torch.cuda.is_available():
        count = torch.cuda.device_count()
        free, total = torch.cuda.mem_get_info()
        name = f"{count} x {torch.cuda.get_device_name(0)}, CUDA {torch.version.cuda}"
        return Outcome(f"{name}, {free / 1e9:.0f} of {total / 1e9:.0f} GB free")
    if DRIVER.exists() and os.environ.get("CUDA_VISIBLE_DEVICES") not in ("", "-1"):
        result = f"torch {torch.__version__} sees none, but the machine has a driver of NVIDIA"
        return Outcome(result, GET_TORCH, works=False)
    return Outcome("none; device=cpu, for small networks and evaluation")


def try_precisions() -> Outcome:
    """Compares products of each precision that the device has with float64."""
    device = resolve_device("auto")
    generator = torch.Generator().manual_seed(0)
    first, second = (torch.randn(SIZE, SIZE, generator=generator) for _ in range(2))
    expected = first.double() @ second.double()
    texts, wrong = [], []
    for name in _list_precisions(device):
        set_precision(name, device)
        with autocast(name, device):
            computed = (first.to(device) @ second.to(device)).cpu()
        error = _relative_error(computed, expected)
        texts.append(f"{name} {error:.0e}")
        if not error <= TOLERANCES[name]:
            wrong.append(name)
    set_precision("fp32", device)
    result = f"relative errors {', '.join(texts)}"
    if not wrong:
        return Outcome(result)
    remedy = "unset NVIDIA_TF32_OVERRIDE, OPENBLAS_CORETYPE and MKL_*; try another version of torch"
    return Outcome(f"{result}; too large: {', '.join(wrong)}", remedy, works=False)


def _list_precisions(device: torch.device) -> list[str]:
    if device.type != "cuda":
        return ["fp32", "bf16"]
    return ["fp32", "tf32", "bf16"]  # GPUs before Ampere compute float32 for tf32


def try_step() -> Outcome:
    """Compares loss and gradients of a step of training with float64 on the processor."""
    device = resolve_device("auto")
    set_precision("fp32", device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        embedder = Embedder(SmallCNN(width=8), size=DIMENSIONS)
        loss = MeanFieldContrastiveLoss(num_classes=CLASSES, embedding_size=DIMENSIONS)
        images = torch.rand(CLASSES * PER_CLASS, 3, SIDE, SIDE)
    parts = nn.ModuleList([embedder, loss])
    expected = _loss_and_gradients(copy.deepcopy(parts).double(), images.double())
    computed = _loss_and_gradients(parts.to(device), images.to(device))
    errors = [_relative_error(*pair) for pair in zip(computed, expected, strict=True)]
    result = f"{device_name(device)}: relative errors of at most {max(errors):.0e}"
    if max(errors) <= STEP_TOLERANCE:
        return Outcome(result)
    remedy = "try another version of torch, or device=cpu; such results are worth nothing"
    return Outcome(f"{result}, more than {STEP_TOLERANCE}", remedy, works=False)


def _loss_and_gradients(parts: nn.ModuleList, images: Tensor) -> list[Tensor]:
    """Returns the loss of a batch, and its gradient in each parameter, on the CPU."""
    embedder, loss = parts
    labels = torch.arange(CLASSES, device=images.device).repeat_interleave(PER_CLASS)
    value = loss(embedder.train()(images), labels)
    value.backward()
    results = [value.detach().cpu()]
    for parameter in parts.parameters():
        if parameter.grad is not None:
            results.append(parameter.grad.cpu())
    return results


def _relative_error(computed: Tensor, expected: Tensor) -> float:
    """Returns the largest difference relative to the largest value; infinity for NaN."""
    largest = expected.double().abs().max().clamp(min=1e-12)
    error = float((computed.double() - expected.double()).abs().max() / largest)
    return error if error == error else float("inf")
