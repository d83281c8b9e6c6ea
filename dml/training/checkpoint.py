"""Checkpoints of everything that decides the future, in plain types and tensors.

`last.pt` is written after every evaluation, `previous.pt` is the one before it, `best.pt` holds the
weights of the best evaluation. A file is either whole or absent: see `dml.core.atomic_io`.
"""

from __future__ import annotations

import errno
import io
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from dml.core.atomic_io import replace_file
from dml.core.errors import UserError
from dml.core.fault_injection import fault_point


class Checkpoints:
    """The checkpoints of one training job.

    Args:
        folder: where `last.pt`, `previous.pt` and `best.pt` go.
        identity: flat, plain-typed description of what is trained; a checkpoint made with another
            one is refused.
    """

    def __init__(self, folder: str | Path, identity: dict[str, Any]) -> None:
        self.folder = Path(folder)
        self.identity = identity

    @property
    def last(self) -> Path:
        """Where the newest state is."""
        return self.folder / "last.pt"

    @property
    def previous(self) -> Path:
        """Where the state before the newest is."""
        return self.folder / "previous.pt"

    @property
    def best(self) -> Path:
        """Where the weights of the best evaluation are."""
        return self.folder / "best.pt"

    def save(self, state: dict[str, Any]) -> None:
        """Makes `state` the last checkpoint and the last one the previous."""
        with _writing(self.last) as temporary:
            temporary.write_bytes(_packed({"identity": self.identity, **state}))
            if self.last.exists():
                self.last.replace(self.previous)
            fault_point("between_checkpoints")

    def save_best(self, state: dict[str, Any]) -> None:
        """Makes `state` the best checkpoint."""
        with _writing(self.best) as temporary:
            temporary.write_bytes(_packed({"identity": self.identity, **state}))

    def load(self, needed: Iterable[str] = ()) -> tuple[dict[str, Any], str] | None:
        """The newest readable state and a note for the user (empty if there is nothing to tell).

        Returns None where there is no checkpoint at all.

        Args:
            needed: what a state must hold; one without it (a `best.pt`, say) counts as unreadable.

        Raises:
            UserError: there are checkpoints but none can be read, or they are of another run.
        """
        if not self.last.exists() and not self.previous.exists():
            return None
        note = ""
        for path in (self.last, self.previous):
            try:
                state = read(path)
                missing = [key for key in needed if key not in state]
                if missing:
                    raise UserError(f"{path} is no training state (it has no '{missing[0]}')")
            except UserError as error:
                note = f"{error}; going on from {self.previous.name} instead"
                continue
            except FileNotFoundError:
                continue
            self._check_identity(path, state)
            return state, note
        raise UserError(
            f"resume: neither last.pt nor previous.pt in {self.folder} can be read; "
            f"overwrite=true starts anew"
        )

    def load_best(self) -> dict[str, Any]:
        """The state of the best evaluation.

        Raises:
            UserError: it is absent, unreadable, or of another run.
        """
        try:
            state = read(self.best)
        except FileNotFoundError as error:
            raise UserError(
                f"resume: {self.best} is missing; overwrite=true starts anew"
            ) from error
        except UserError as error:
            raise UserError(f"resume: {error}; overwrite=true starts anew") from error
        if not {"embedder", "method", "metrics", "epoch", "step"} <= state.keys():
            raise UserError(f"resume: {self.best} holds no weights; overwrite=true starts anew")
        self._check_identity(self.best, state)
        return state

    def _check_identity(self, path: Path, state: dict[str, Any]) -> None:
        found = state.get("identity")
        if not isinstance(found, dict):
            raise UserError(f"resume: {path} does not say of which run; overwrite=true starts anew")
        for key in sorted(found.keys() | self.identity.keys(), key=str):
            # As text: NaN is not equal to itself.
            if repr(found.get(key)) != repr(self.identity.get(key)):
                raise UserError(
                    f"resume: {path} was made with {key}={found.get(key)}, "
                    f"this run has {key}={self.identity.get(key)}; overwrite=true starts anew"
                )


@contextmanager
def _writing(path: Path) -> Iterator[Path]:
    """`replacing`, with a full disk told in the user's terms."""
    try:
        with replace_file(path) as temporary:
            yield temporary
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = "make room" if full else "mend that"
        raise UserError(
            f"outputs: cannot save {path}: {error.strerror or error}; the checkpoint before it is "
            f"intact, {remedy} and run the same command to continue"
        ) from error


@contextmanager
def fitting(path: Path) -> Iterator[None]:
    """Tells of a state that is put back, and is another one than this run's.

    Raises:
        UserError: whatever is wrong with it.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # a missing entry, another shape, another type: of many classes
        reason = (str(error).splitlines() or [""])[-1].strip()
        raise UserError(
            f"resume: {path} does not fit this run ({type(error).__name__}: {reason}); "
            f"overwrite=true starts anew"
        ) from error


def read(path: str | Path) -> dict[str, Any]:
    """A checkpoint's content, on the CPU.

    Raises:
        FileNotFoundError: it is not there.
        UserError: it is not a whole checkpoint.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise
    except Exception as error:  # torch raises RuntimeError, EOFError, UnpicklingError, OSError…
        raise UserError(f"{path} is not a whole checkpoint ({type(error).__name__})") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} is not a checkpoint of this program")
    return content


def random_state(device: torch.device) -> dict[str, Any]:
    """The state of every global random number generator, in plain types.

    Args:
        device: of all GPUs' generators only that of the one in use counts.
    """
    kind, keys, position, has_gauss, cached = cast(tuple[Any, ...], np.random.get_state())
    version, internal, gauss = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": [torch.cuda.get_rng_state(device)] if device.type == "cuda" else [],
        "numpy": [kind, torch.from_numpy(keys.astype(np.int64)), position, has_gauss, cached],
        "python": [version, list(internal), gauss],
    }


def set_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Restores what `random_state` returned, on whatever device it was taken."""
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and state["cuda"]:
        torch.cuda.set_rng_state(state["cuda"][0], device)
    kind, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, cached))
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))


def _packed(content: dict[str, Any]) -> bytes:
    # Into memory first: torch.save would write the temporary file's name into the file, and equal
    # states would no longer be equal files.
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()
