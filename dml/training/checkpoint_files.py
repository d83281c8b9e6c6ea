"""Checkpoints of the complete training state, in plain types and tensors.

`last.pt` is written after every evaluation, and removed when the training is finished. `best.pt`
contains the weights of the best evaluation. Files are written atomically (`dml.core.atomic_io`), by
a thread while training continues.

They contain the state of `dml.training.train_state` and the progress of `dml.training.trainer`.
"""

from __future__ import annotations

import copy
import errno
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from dml.core.atomic_io import replace_file
from dml.core.deadline import note_saved
from dml.core.errors import UserError, first_line
from dml.core.fault_injection import fault_point
from dml.core.file_formats import find_table
from dml.core.locks import check_held
from dml.core.plain_text import show_line
from dml.core.regular_files import open_regular
from dml.core.run_log import run_logger
from dml.training.process_group import SINGLE_PROCESS, ProcessGroup

HAS_BEST = "has_best"  # in the last state: whether `best.pt` was written before it
IDENTITY = "identity"  # that every checkpoint of a run has
OTHER_CLASS = "GLOBAL"  # in torch's message on a class that it does not load
SHOWN, SHOWN_LENGTH = 4, 80  # names of a dictionary, and characters of them, in a message


class Checkpoints:
    """The checkpoints of one model.

    If several processes train the model, all of them call every method, but only the first one
    reads and writes. Its errors are raised on all processes.

    Args:
        folder: folder of `last.pt` and `best.pt`.
        identity: description of the model and its training, name → plain value; a checkpoint with
            another identity is rejected.
        world: the processes; only the first one needs access to the folder.

    Attributes:
        last, best: paths of the files.
    """

    def __init__(
        self, folder: str | Path, identity: dict[str, Any], world: ProcessGroup = SINGLE_PROCESS
    ) -> None:
        self.folder, self.identity, self.world = Path(folder), identity, world
        self.last, self.best = self.folder / "last.pt", self.folder / "best.pt"
        self._best_state: dict[str, Any] | None = None  # of the next `save`
        self._has_best = False  # since an earlier `save`
        self._executor = ThreadPoolExecutor(1, "checkpoint writer")
        self._written: Future[None] = Future()
        self._written.set_result(None)

    def keep_best(self, state: dict[str, Any]) -> None:
        """Copies `state`, which the next `save` writes to `best.pt`."""
        if self.world.is_main:
            self._best_state = copy.deepcopy(state)

    def save(self, state: dict[str, Any]) -> None:
        """Copies `state` and starts to write it to `last.pt`, after a new best state to `best.pt`.

        Tensors on a GPU are copied on the GPU, so that training does not wait for their transfer.
        Waits for the previous `save`.

        Raises:
            UserError: the previous `save` could not write its files.
        """

        def start() -> None:
            self._written.result()
            best, self._best_state = self._best_state, None
            self._written = self._executor.submit(self._write, copy.deepcopy(state), best)

        self.world.broadcast_from_main(start)

    def wait(self) -> None:
        """Waits until all files are written.

        Raises:
            UserError: a file could not be written.
        """
        self.world.broadcast_from_main(self._written.result)

    def remove_states(self) -> None:
        """Removes the states of a finished training except `best.pt`."""
        self.last.unlink(missing_ok=True)

    def wait_quietly(self) -> None:
        """Waits on this process only and raises no errors, since the run already ends with one."""
        wait([self._written])

    def _write(self, state: dict[str, Any], best: dict[str, Any] | None) -> None:
        try:
            if best is not None:  # first, because the last state refers to it
                self._replace(self.best, best)
                self._has_best = True
            elif self._has_best:
                self._check_best()
            fault_point("between_checkpoints")
            self._replace(self.last, {**state, HAS_BEST: self._has_best})
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            remedy = "free some space" if full else "repair that"
            raise UserError(
                f"outputs: cannot save {error.filename}: {error.strerror or error}; the checkpoint "
                f"before it is intact, {remedy} and run the same command to continue"
            ) from error
        names = "last.pt" if best is None else "best.pt and last.pt"
        run_logger.info("saved %s/%s, step %s", self.folder.name, names, state.get("step"))
        note_saved(self.folder.name, state.get("step", 0))

    def _check_best(self) -> None:
        """Raises UserError if the best weights are gone, which no later save writes again."""
        if not self.best.is_file():
            check_held(self.best)  # its folder is gone with it
            raise UserError(
                f"outputs: {self.best} was deleted, moved or replaced while this process trained; "
                f"put it back, or start over with overwrite=true"
            )

    def _replace(self, path: Path, state: dict[str, Any]) -> None:
        # To an open file: given a path, torch.save would write the file name into the file, and
        # equal states would give different files.
        with replace_file(path) as temporary, open(temporary, "wb") as file:
            try:
                torch.save({IDENTITY: self.identity, **state}, file)
            except RuntimeError as error:  # torch's writer ends the file after a failed write too
                raise error.__context__ or error from None

    def load(self) -> dict[str, Any] | None:
        """Returns the last state; None if there is no checkpoint.

        Raises:
            UserError: the checkpoint cannot be read, or it belongs to another run, or the best
                weights so far are missing.
        """
        state = self.world.broadcast_from_main(self._load)
        self._has_best = state is not None and state.pop(HAS_BEST, False)
        note_saved(self.folder.name, 0 if state is None else state.get("step", 0))
        return state

    def _load(self) -> dict[str, Any] | None:
        state = self._read(self.last)
        if state is not None and state.get(HAS_BEST) and not self.best.exists():
            raise self._missing_best()
        return state

    def _missing_best(self) -> UserError:
        return UserError(f"resume: {self.best} is missing; overwrite=true starts over")

    def load_best(self) -> dict[str, Any]:
        """Returns the state of the best evaluation.

        Raises:
            UserError: it is missing, unreadable, or belongs to another run.
        """
        state = self.world.broadcast_from_main(lambda: self._read(self.best))
        if state is None:
            raise self._missing_best()
        return state

    def _read(self, path: Path) -> dict[str, Any] | None:
        self._written.result()
        if not path.exists():
            return None
        state = read_checkpoint(path)
        stored = state[IDENTITY]
        for key in sorted(stored.keys() | self.identity.keys()):
            # As text: NaN is not equal to itself.
            if repr(stored.get(key)) != repr(self.identity.get(key)):
                raise UserError(
                    f"resume: {path} was made with {key}={stored.get(key)}, "
                    f"this run has {key}={self.identity.get(key)}; overwrite=true starts over"
                )
        return state


def read_checkpoint(
    path: str | Path, option: str = "resume", advice: str = "overwrite=true starts over"
) -> dict[str, Any]:
    """Reads a checkpoint onto the CPU.

    Args:
        path: of the file.
        option: that names it, for messages.
        advice: what to do if it cannot be read, for messages.

    Raises:
        UserError: it is not a complete checkpoint, or another program wrote it.
    """
    try:
        with open_regular(path) as file:
            content: Any = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises RuntimeError, EOFError, UnpicklingError, OSError…
        problem = _describe_unreadable(Path(path), error)
        raise UserError(f"{option}: {path} {problem}; {advice}") from error
    if not isinstance(content, dict) or IDENTITY not in content:
        kind = type(content).__name__
        if isinstance(content, dict):
            names = ", ".join(map(str, list(content)[:SHOWN]))
            kind = f"a dictionary of {names}"[:SHOWN_LENGTH]
        problem = f"is no checkpoint of a run: another program wrote it ({show_line(kind)})"
        raise UserError(f"{option}: {path} {problem}; {advice}")
    return content


def _describe_unreadable(path: Path, error: Exception) -> str:
    """Returns what a file is that torch cannot read: one of another program, or damaged."""
    if isinstance(error, UnpicklingError) and OTHER_CLASS in str(error):
        return (
            "is no checkpoint of a run: another program wrote it, with classes that are not loaded"
        )
    kind = find_table(path)
    if kind:
        return f"is no checkpoint of a run, but {kind} of another program"
    return f"is not a complete checkpoint ({type(error).__name__})"


@contextmanager
def translate_state_errors(path: Path) -> Iterator[None]:
    """Converts errors of `load_state_dict` to error messages for users.

    Args:
        path: the checkpoint that is loaded.

    Raises:
        UserError: the state does not fit this run.
    """
    try:
        yield
    except Exception as error:  # of many classes: a missing entry, another shape or type
        raise UserError(
            f"resume: {path} does not fit this run ({type(error).__name__}: {first_line(error)}); "
            f"overwrite=true starts over"
        ) from error
