"""The checks of a machine, in the order in which they are tried."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch

from dml.cli.machine.cuda_tests import try_cuda_tests
from dml.cli.machine.device import try_gpu, try_machine, try_precisions, try_step
from dml.cli.machine.disk import OTHER_FOLDER, try_locks, try_space, try_writing
from dml.cli.machine.network import OFFLINE, try_dataset, try_hub
from dml.cli.machine.outcome import Check
from dml.cli.machine.processes import exchange_in, try_processes
from dml.cli.machine.products import VARIABLE, try_products
from dml.cli.machine.shared_locks import try_locks_of
from dml.cli.machine.speed import FirstRow
from dml.core.installation import CLONE
from dml.data.preparation.sources import SOURCES
from dml.training.process_group import ProcessGroup

DRIVER_REMEDY = "restart the machine, or its driver; device=cpu does without the GPU"
PRODUCTS_REMEDY = f"unset {VARIABLE} and MKL_*; try another version of NumPy"
PROCESSES_REMEDY = "train in one process, or see docs/guides/cluster_and_several_gpus.md"
SPEED_REMEDY = "run the command again when the machine is idle, and report what it says"


def list_common_checks(outputs: Path, world: ProcessGroup) -> Iterator[Check]:
    """Yields the checks in which all processes of torchrun take part.

    Args:
        outputs: folder of runs.
        world: the processes of torchrun, or `SINGLE_PROCESS`.
    """
    exchange, locks = partial(try_processes), partial(try_locks, outputs)
    title = "a lock of two processes"
    if world.size > 1:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        exchange, locks = partial(exchange_in, world, device), partial(try_locks_of, outputs, world)
        title = "a lock that processes share"
    yield Check("processes", "tensors between processes", exchange, PROCESSES_REMEDY)
    yield Check("locks", title, locks, OTHER_FOLDER)


def list_other_checks(outputs: Path) -> Iterator[Check]:
    """Yields the checks of a single process.

    Args:
        outputs: folder of runs.
    """
    yield Check("disk", "a file written, synced, read", partial(try_writing, outputs), OTHER_FOLDER)
    yield Check("space", "free space", partial(try_space, outputs), OTHER_FOLDER)
    yield Check("machine", "processor and memory", try_machine, DRIVER_REMEDY)
    yield Check("GPU", "GPUs that torch sees", try_gpu, DRIVER_REMEDY)
    yield Check("precision", "products against float64", try_precisions, DRIVER_REMEDY)
    yield Check("products", "products of evaluation", try_products, PRODUCTS_REMEDY)
    yield Check("step", "a step of training against float64", try_step, DRIVER_REMEDY)
    yield Check("hub", "the hub of weights", try_hub, OFFLINE)
    address = SOURCES["cub"].files[0].addresses[0]
    yield Check("dataset", "the server of CUB", partial(try_dataset, address), OFFLINE)
    row = FirstRow()
    yield Check("input", "photos read and resized", row.try_input, SPEED_REMEDY)
    yield Check("network", "DINO ViT-S/16, 224 pixels", row.try_embedding, SPEED_REMEDY)
    yield Check("first row", "CUB without training", row.estimate, SPEED_REMEDY)
    if CLONE is not None and torch.cuda.is_available():
        run = partial(try_cuda_tests, CLONE)
        yield Check("tests", "tests that need a GPU", run, "run pytest -m cuda")
