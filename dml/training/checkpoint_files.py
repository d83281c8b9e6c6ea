"""Checkpoints of the complete training state, in plain types and tensors.

`last.pt` is written after every evaluation, `previous.pt` is the one before it, `best.pt` holds the
weights of the best evaluation. A file is either complete or absent: see `dml.core.atomic_io`. A
thread writes them while training goes on: see `dml.training.background_writer`.

Their content is that of `dml.training.train_state`, with the progress of `dml.training.trainer`.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

from dml.core.atomic_io import replace_file
from dml.core.errors import RunStopped, UserError
from dml.core.fault_injection import fault_point
from dml.core.run_logger import run_logger
from dml.training.background_writer import BackgroundWriter, copy_state
from dml.training.process_group import ProcessGroup


class Checkpoints:
    """The checkpoints of one training job.

    Args:
        folder: where `last.pt`, `previous.pt` and `best.pt` go.
        identity: flat, plain-typed description of what is trained; a checkpoint with another
            identity is refused.
    """

    def __init__(self, folder: str | Path, identity: dict[str, Any]) -> None:
        self.folder = Path(folder)
        self.identity = identity
        self._writer = BackgroundWriter()
        self._best_state: dict[str, Any] | None = None  # of the next `save`

    @property
    def last(self) -> Path:
        """The file of the newest state."""
        return self.folder / "last.pt"

    @property
    def previous(self) -> Path:
        """The file of the state before the newest."""
        return self.folder / "previous.pt"

    @property
    def best(self) -> Path:
        """The file of the weights of the best evaluation."""
        return self.folder / "best.pt"

    def keep_best(self, state: dict[str, Any]) -> None:
        """Copies `state`, which the next `save` writes as `best.pt`."""
        self._best_state = copy_state(state)

    def save(self, state: dict[str, Any]) -> None:
        """Copies `state` and starts to write it as `last.pt`, after the best state if there is one.

        The former `last.pt` becomes `previous.pt`. Waits until the states of the `save` before are
        written.

        Raises:
            UserError: they could not be written.
        """
        self._writer.wait()
        best, self._best_state = self._best_state, None
        self._writer.start(partial(self._write, copy_state(state), best))

    def wait(self) -> None:
        """Waits until everything is written.

        Raises:
            UserError: it could not be.
        """
        self._writer.wait()

    @contextmanager
    def until_written(self) -> Iterator[None]:
        """A context at whose end everything is written, however it ends.

        Raises:
            UserError: it could not be, so that a run which ends or stops is not saved.
        """
        try:
            yield
        except RunStopped:
            self.wait()
            raise
        except BaseException:  # of this process alone, maybe: no waiting with others
            self._writer.wait_quietly()
            raise
        self.wait()

    def _write(self, state: dict[str, Any], best: dict[str, Any] | None) -> None:
        if best is not None:  # first, since the last state names its step
            with _replace_file(self.best) as temporary:
                self._serialize(best, temporary)
            self._log_save(self.best, best)
        with _replace_file(self.last) as temporary:
            self._serialize(state, temporary)
            if self.last.exists():
                self.last.replace(self.previous)
            fault_point("between_checkpoints")
        self._log_save(self.last, state)

    def _serialize(self, state: dict[str, Any], path: Path) -> None:
        # To an open file: with a path torch.save writes its name into the file, and equal states
        # would no longer be equal files.
        with open(path, "wb") as file:
            try:
                torch.save({"identity": self.identity, **state}, file)
            except RuntimeError as error:  # torch's writer ends the file after a failed write too
                if isinstance(error.__context__, OSError):
                    raise error.__context__ from None
                raise

    def _log_save(self, path: Path, state: dict[str, Any]) -> None:
        run_logger.info("saved %s/%s, step %s", self.folder.name, path.name, state.get("step"))

    def load(self, needed: Iterable[str] = ()) -> tuple[dict[str, Any], str] | None:
        """Returns the newest readable state and a note for the user, which may be empty.

        Returns None if there is no checkpoint.

        Args:
            needed: required keys; a state without them (for example a `best.pt`) is unreadable.

        Raises:
            UserError: none of the checkpoints can be read, or they belong to another run.
        """
        self._writer.wait()
        if not self.last.exists() and not self.previous.exists():
            return None
        note = ""
        for path in (self.last, self.previous):
            try:
                state = read_checkpoint(path)
                missing = [key for key in needed if key not in state]
                if missing:
                    raise UserError(f"{path} is not a training state (it has no '{missing[0]}')")
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
        """Returns the state of the best evaluation.

        Raises:
            UserError: it is absent, unreadable, or belongs to another run.
        """
        self._writer.wait()
        try:
            state = read_checkpoint(self.best)
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
            raise UserError(f"resume: {path} does not name its run; overwrite=true starts anew")
        for key in sorted(found.keys() | self.identity.keys(), key=str):
            # As text: NaN is not equal to itself.
            if repr(found.get(key)) != repr(self.identity.get(key)):
                raise UserError(
                    f"resume: {path} was made with {key}={found.get(key)}, "
                    f"this run has {key}={self.identity.get(key)}; overwrite=true starts anew"
                )


@contextmanager
def _replace_file(path: Path) -> Iterator[Path]:
    """Replaces a file atomically; a full disk becomes an error message for users."""
    try:
        with replace_file(path) as temporary:
            yield temporary
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = "free some space" if full else "repair that"
        raise UserError(
            f"outputs: cannot save {path}: {error.strerror or error}; the checkpoint before it is "
            f"intact, {remedy} and run the same command to continue"
        ) from error


@contextmanager
def translate_state_errors(path: Path) -> Iterator[None]:
    """Turns errors of `load_state_dict` into an error message for users.

    Args:
        path: of the checkpoint that is being restored.

    Raises:
        UserError: the state does not fit this run.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # of many classes: a missing entry, another shape or type
        reason = (str(error).splitlines() or [""])[-1].strip()
        raise UserError(
            f"resume: {path} does not fit this run ({type(error).__name__}: {reason}); "
            f"overwrite=true starts anew"
        ) from error


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """Reads a checkpoint onto the CPU.

    Raises:
        FileNotFoundError: there is no such file.
        UserError: it is not a complete checkpoint.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise
    except Exception as error:  # torch raises RuntimeError, EOFError, UnpicklingError, OSError…
        raise UserError(f"{path} is not a complete checkpoint ({type(error).__name__})") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} is not a checkpoint of this program")
    return content


class SharedCheckpoints(Checkpoints):
    """The checkpoints of a job that several processes train; the files are those of one process.

    Every process calls every method; an error on the first one is raised on all of them, one of
    writing when they next save, wait or load.

    Args:
        folder, identity: see `Checkpoints`.
        world: the processes; only the first one needs access to the folder.
    """

    def __init__(self, folder: str | Path, identity: dict[str, Any], world: ProcessGroup) -> None:
        super().__init__(folder, identity)
        self.world = world

    def keep_best(self, state: dict[str, Any]) -> None:
        """Copies `state`, which the next `save` writes as `best.pt`."""
        self.world.broadcast_from_main(partial(super().keep_best, state))

    def save(self, state: dict[str, Any]) -> None:
        """Copies `state` and starts to write it as `last.pt`."""
        self.world.broadcast_from_main(partial(super().save, state))

    def wait(self) -> None:
        """Waits until everything is written."""
        self.world.broadcast_from_main(super().wait)

    def load(self, needed: Iterable[str] = ()) -> tuple[dict[str, Any], str] | None:
        """The newest readable state and a note for the user; None if there is no checkpoint."""
        return self.world.broadcast_from_main(partial(super().load, needed))

    def load_best(self) -> dict[str, Any]:
        """The state of the best evaluation."""
        return self.world.broadcast_from_main(super().load_best)
