"""The folder of a run: the paths of its files, and its locks."""

from __future__ import annotations

import re
import shlex
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from dml.config.identity import digest
from dml.config.schema import Config
from dml.core.atomic_io import read_json, write_json, write_text
from dml.core.errors import UserError
from dml.core.installation import shell_command
from dml.core.locks import LockHeldError, try_lock
from dml.runs.folder.folder_name import describe_overrides, find_run_folder
from dml.runs.folder.run_log import LOG

RUN_LOCK = "run.lock"  # of the process that trains
SEARCH_LOCK = "search.lock"  # shared by the workers of a search


class Busy(UserError):
    """Another process is at work in the folder."""


class RunFolder:
    """`outputs/<experiment>/<data>-<protocol>-<loss>-<method>-<backbone>/seed<seed>-…-<digest>/`."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @classmethod
    def of(cls, cfg: DictConfig, config: Config, overrides: Sequence[str] = ()) -> RunFolder:
        """Returns the folder of a config, which is the same for the same command.

        Args:
            cfg: as composed by Hydra.
            config: the same, checked.
            overrides: words of the command line; they describe a folder that does not exist yet.
        """
        parts = (config.data.name, config.protocol.name, config.loss["name"])
        names = "-".join([*parts, config.method["name"], config.backbone["name"]])
        home = Path(config.outputs) / config.experiment.id / names
        described = describe_overrides(cfg, overrides) if overrides else ""
        return cls(find_run_folder(home, config.seed, digest(cfg), described))

    @property
    def config(self) -> Path:
        """The resolved config."""
        return self.path / "config.yaml"

    @property
    def command(self) -> Path:
        """The command of the run, one line to copy."""
        return self.path / "command.txt"

    @property
    def history(self) -> Path:
        """One row per evaluation."""
        return self.path / "history.csv"

    @property
    def summary(self) -> Path:
        """Scores; written last: its presence means that the run is finished."""
        return self.path / "summary.json"

    @property
    def dataset(self) -> Path:
        """Name, size and fingerprint of the dataset."""
        return self.path / "dataset.json"

    @property
    def figures(self) -> Path:
        """Folder of the figures."""
        return self.path / "figures"

    def pictures(self) -> list[Path]:
        """The existing figures."""
        return sorted(self.figures.glob("*.png"))

    @property
    def search(self) -> Path:
        """Files that the workers of a search share."""
        return self.path / "search"

    @property
    def journal(self) -> Path:
        """All trials of a search; can be opened with `optuna-dashboard`."""
        return self.search / "journal.log"

    @property
    def best(self) -> Path:
        """Parameters of a search's best trial, for `params=`."""
        return self.path / "best.yaml"

    @property
    def trials(self) -> Path:
        """Folders of a search's trials."""
        return self.search / "trials"

    def job(self, name: str) -> Path:
        """Folder of the checkpoints of a job."""
        return self.path / "checkpoints" / name

    def read_summary(self) -> dict[str, Any] | None:
        """Returns the summary of a finished run; None if it is not finished.

        Raises:
            UserError: the file exists but is not a summary.
        """
        summary = read_json(self.summary)
        if summary is not None and "metrics" not in summary:
            raise UserError(f"outputs: {self.summary} is not the summary of a run; delete it")
        return summary

    def write_config(self, cfg: DictConfig) -> None:
        """Writes the resolved config."""
        write_text(self.config, OmegaConf.to_yaml(cfg, resolve=True))

    def write_command(self, overrides: Sequence[str]) -> None:
        """Writes the command that starts and continues the run."""
        words = [word for word in overrides if not word.startswith("overwrite=")]
        write_text(self.command, f"{shell_command('train')} {shlex.join(words)}".rstrip() + "\n")

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Writes the summary, which marks the run as finished."""
        write_json(self.summary, summary)

    def check_dataset(self, name: str, fingerprint: str, images: int) -> None:
        """Stores name, size and fingerprint of the dataset, or compares them.

        Raises:
            UserError: the run was started with other images, or the file is damaged.
        """
        stored = read_json(self.dataset)
        if stored is None:
            dataset = {"name": name, "images": images, "fingerprint": fingerprint}
            write_json(self.dataset, dataset)
        elif stored.get("fingerprint") != fingerprint:
            raise UserError(
                f"data: {name} has other images, labels or splits ({images} images) than when "
                f"{self.path} was started ({stored.get('images')} images); "
                f"overwrite=true starts anew with those of today"
            )

    def run_id(self) -> str:
        """Returns a unique name of the run; trackers continue the run with this name."""
        path = self.path / "run_id"
        try:
            run_id = path.read_text(encoding="utf-8", errors="replace").strip()
        except FileNotFoundError:
            run_id = ""
        except OSError as error:
            raise UserError(f"outputs: {path}: {error.strerror}; delete it") from error
        if not re.fullmatch("[0-9a-f]{12}", run_id):
            run_id = uuid.uuid4().hex[:12]
            write_text(path, run_id + "\n")
        return run_id

    def clear(self) -> None:
        """Removes all files of an earlier run except the lock."""
        files = (
            self.summary,
            self.history,
            self.config,
            self.command,
            self.dataset,
            self.best,
            self.path / LOG,
        )
        folders = ("checkpoints", "figures", "search", "logs", "wandb")
        for path in (*files, *(self.path / name for name in ("run_id", *folders))):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    @contextmanager
    def locked(self, name: str = RUN_LOCK, shared: bool = False) -> Iterator[None]:
        """Keeps other processes out while this one writes.

        The system frees the lock when its holder dies, however it dies; the file only names it.

        Args:
            name: which of the folder's locks.
            shared: other processes may hold it too, if they share it as well.

        Raises:
            Busy: another process has it.
            UserError: the folder cannot be written.
        """
        with ExitStack() as held:
            try:
                held.enter_context(try_lock(self.path / name, shared))
            except LockHeldError as error:
                raise Busy(
                    f"outputs: {self.path} is being written by {error.holder}; wait for it, or "
                    f"stop it"
                ) from error
            except OSError as error:
                reason = error.strerror
                raise UserError(f"outputs: cannot write to {self.path}: {reason}") from error
            yield
