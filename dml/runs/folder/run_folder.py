"""The folder of a run: its name, the paths of its files, its locks, and its config."""

from __future__ import annotations

import os
import shlex
import shutil
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dml.config.check import check
from dml.config.identity import dataset_id
from dml.config.options import with_options
from dml.config.presets import check_values
from dml.config.schema import LORA, Config
from dml.config.trust import check_content
from dml.core.atomic_io import read_json, write_json, write_text
from dml.core.errors import ConfigError, UserError, first_line
from dml.core.installation import shell_command
from dml.core.locks import lock_all, try_lock
from dml.core.regular_files import read_regular_text
from dml.core.replaced_folder import recover_folder
from dml.core.secrets import mask_options, mask_words
from dml.data.image_index import ImageIndex, hash_text
from dml.runs.folder.stored_run import WEIGHTS, StoredRun, is_run, read_config

RUN_LOCK = "run.lock"  # of the process that trains
RESULT = "result.json"  # of a job: it is finished, unless figures are left to draw
EMBEDDINGS = "test_embeddings.npz"  # of one of several models, or if they are to be kept
STAGE_EMBEDDINGS = "test_embeddings_stage{:02d}.npz"  # at the end of a stage of CCP, if kept
# Files and folders by which a folder without a config was a run.
OF_RUNS = (
    *("checkpoints", "search", "figures", "history.csv", "best.yaml", "dataset.json", "run_id"),
    "environment.json",
    "categories.csv",
)
FIGURES_STATE = "figures_state.txt"  # beside a result or summary while its figures are left to draw


class RunFolder:
    """`outputs/<experiment>/<data>-<protocol>-<loss>-<method>-<backbone>/seed<seed>-<digest>/`.

    Attributes:
        config: the resolved config.
        command: the command of the run, one line to copy.
        history: one row per evaluation.
        summary: scores; its presence means that the run is finished.
        categories: scores of each category, of `evaluation.by`.
        figures_state: exists while the figures of a finished run are left to draw.
        dataset: name, size and fingerprint of the dataset, and a hash of a user's own images.
        environment: versions and commit of each start that changed them.
        figures: folder of the figures.
        search: folder of the files that the workers of a search share.
        journal: all trials of a search; can be opened with `optuna-dashboard`.
        trials: folders of a search's trials.
        best: parameters of a search's best trial, for `params=`.
        trained: the config with these parameters, and with what follows from them.
        derived: the options that follow from the searched ones.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.lock = self.path / RUN_LOCK
        self.config = self.path / "config.yaml"
        self.command = self.path / "command.txt"
        self.history = self.path / "history.csv"
        self.summary = self.path / "summary.json"
        self.categories = self.path / "categories.csv"
        self.dataset = self.path / "dataset.json"
        self.environment = self.path / "environment.json"
        self.figures = self.path / "figures"
        self.figures_state = self.path / FIGURES_STATE
        self.search = self.path / "search"
        self.journal = self.search / "journal.log"
        self.trials = self.search / "trials"
        self.best = self.path / "best.yaml"
        self.trained = self.search / "trained.yaml"
        self.derived = self.search / "derived.json"

    @classmethod
    def of(cls, config: Config) -> RunFolder:
        """Returns the folder of a config, which is the same for the same command."""
        return cls.named(config, config.digest)

    @classmethod
    def named(cls, config: Any, digest: str) -> RunFolder:
        """Returns the folder of a config that is not checked yet, with its digest."""
        data = dataset_id(config.data.name, config.data.crop, config.data.images)
        parts = (data, config.protocol.name, config.loss["name"])
        names = "-".join([*parts, config.method["name"], config.backbone["name"]])
        home = Path(config.outputs) / config.experiment.id / names
        return cls(home / f"seed{config.seed}-{digest}")

    def pictures(self) -> list[Path]:
        """Returns the existing figures."""
        return sorted(self.figures.glob("*.png"))

    def job(self, name: str) -> Path:
        """Returns the folder of the checkpoints of a job."""
        return self.path / "checkpoints" / name

    def read_result(self, job: str) -> dict[str, Any] | None:
        """Returns the result of a job; None if it is not finished, or its figures are left."""
        if (self.job(job) / FIGURES_STATE).exists():
            return None
        return read_json(self.job(job) / RESULT)

    def read_summary(self) -> dict[str, Any] | None:
        """Returns the summary of a finished run; None if it is not finished."""
        return read_json(self.summary)

    def write_config(self, config: Config, overrides: Sequence[str] | None = None) -> None:
        """Writes the resolved config without secrets, and the command that continues the run.

        With the words of the command line; None: the command stays as it is.
        """
        plain = mask_options(config.plain)
        write_text(self.config, OmegaConf.to_yaml(plain))
        if overrides is None:
            return
        kept = [word for word in overrides if not word.startswith("overwrite=")]
        words = mask_words(kept)
        write_text(self.command, f"{shell_command('train')} {shlex.join(words)}".rstrip() + "\n")

    def write_trained(self, config: Config) -> None:
        """Writes the resolved config of the networks that are trained after a search."""
        write_text(self.trained, OmegaConf.to_yaml(mask_options(config.plain)))

    def check_dataset(self, index: ImageIndex, trained: Sequence[str] = ()) -> None:
        """Stores name, size and fingerprint of the dataset, or compares them.

        Args:
            index: the dataset.
            trained: names of the classes that are trained on, which are stored, not compared.

        Raises:
            UserError: the run was started with other images, or the file is damaged.
        """
        stored, images = read_json(self.dataset), len(index.labels)
        dataset = {"name": index.name, "images": images, "fingerprint": index.fingerprint()}
        if index.content:
            dataset["content"] = index.content
        if index.categories is not None:
            dataset["categories"] = hash_text("\n".join(index.categories))
        if stored is None:
            if trained:
                dataset["trained_classes"] = list(trained)
            write_json(self.dataset, dataset)
            return
        # A run of an earlier version has stored no content.
        same_content = stored.get("content", index.content) == index.content
        same_categories = stored.get("categories") == dataset.get("categories")
        same_images = stored.get("fingerprint") == dataset["fingerprint"] and same_content
        if not (same_images and same_categories):
            changed = "categories" if same_images else "images, labels or splits"
            raise UserError(
                f"data: {index.name} has other {changed} ({images} images) than "
                f"when {self.path} was started ({stored.get('images')} images); "
                f"overwrite=true starts anew with those of today"
            )

    def _read_dataset(self) -> dict[str, Any]:
        """Returns what is stored of the dataset; nothing if the file is missing or damaged."""
        with suppress(UserError):
            return read_json(self.dataset) or {}
        return {}

    def has_other_images(self, index: ImageIndex) -> bool:
        """Returns whether a dataset is known to be another one than that of the run."""
        stored = self._read_dataset()
        if "fingerprint" not in stored:
            return False
        known = stored.get("content")
        is_changed = bool(known and index.content) and known != index.content
        return is_changed or stored["fingerprint"] != index.fingerprint()

    def describe_other_images(self, index: ImageIndex) -> str:
        """Returns how many images a dataset has, and how many it had when the run was started."""
        before = self._read_dataset().get("images")
        now = len(index.labels)
        if before == now:
            return f"{index.name} has {now:,} images, as in the training, but not the same"
        if not isinstance(before, int):
            return f"{index.name} has other images than in the training"
        comparison = "more" if now > before else "fewer"
        change = f"{abs(now - before):,} {comparison}"
        return f"{index.name} has {now:,} images, {change} than in the training"

    def fingerprint(self) -> str | None:
        """Returns the fingerprint of the dataset of the run; None if it is not known."""
        return self._read_dataset().get("fingerprint")

    def trained_classes(self) -> set[str]:
        """Returns the names of the classes that the run was trained on, as far as it tells."""
        names = self._read_dataset().get("trained_classes")
        return set(map(str, names)) if isinstance(names, list) else set()

    def run_id(self) -> str:
        """Returns a unique name of the run; trackers continue the run with this name."""
        path = self.path / "run_id"
        if not path.exists():
            write_text(path, uuid.uuid4().hex[:12] + "\n")
        return read_regular_text(path).strip()

    def clear(self) -> None:
        """Removes all files of an earlier run except the locks.

        Of a folder that is no run, only what a run writes is removed.

        Raises:
            Busy: a process works in the folder.
        """
        whole = is_run(self.path)
        with lock_all(self.path, RUN_LOCK):
            for path in self.path.iterdir():
                if not whole and path.name not in OF_RUNS:
                    continue
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                elif path.suffix != ".lock":
                    path.unlink(missing_ok=True)

    def locked(self) -> AbstractContextManager[None]:
        """Locks the folder for this process; see `dml.core.locks.try_lock`."""
        return try_lock(self.lock)


def load_config(
    run_folder: str | Path, data_root: str | None = None, trust: bool = False
) -> Config:
    """Returns the config of a run, including the best values of its search; the device is `auto`.

    Args:
        run_folder: a run folder.
        data_root: the place of the images; None: where they were during training.
        trust: see `load_options`.

    Raises:
        ConfigError: the config is absent or damaged, or names what needs `trust`.
    """
    folder = RunFolder(run_folder)
    options = load_options(run_folder, trust)
    has_trained = bool(options.get("search")) and folder.trained.exists()
    if has_trained:
        options = _load_stored(folder.trained, folder.path, trust)
    options["device"] = "auto"
    if data_root is not None:
        options["data"]["root"] = data_root
        if "root" in options["data"]["reader"]:
            options["data"]["reader"]["root"] = data_root
    is_of_earlier_version = bool(options.get("search")) and not has_trained
    if is_of_earlier_version and folder.best.exists():
        options = _with_best(options, folder.best, trust)
    return check(options)


def load_options(
    run_folder: str | Path,
    trust: bool = False,
    trains: bool = False,
    words: Sequence[str] = (),
) -> dict[str, Any]:
    """Returns the options of a run as they are stored; see `load_config`.

    Args:
        run_folder: a run folder.
        trust: the user trusts the folder: it may name any class or function.
        trains: the run is to be trained; see `dml.config.trust.check_content`.
        words: options of the command line, which replace those of the folder.

    Raises:
        ConfigError: the config is absent or damaged, or names what needs `trust`.
    """
    recover_folder(Path(run_folder))  # of an export that was killed
    folder = RunFolder(run_folder)
    return _load_stored(folder.config, folder.path, trust, trains, words)


def _load_stored(
    path: Path, folder: Path, trust: bool, trains: bool = False, words: Sequence[str] = ()
) -> dict[str, Any]:
    """Returns the options in a file of a run; see `load_options`."""
    options = _read_yaml(path, StoredRun(folder).parse)
    typed = {word.partition("=")[0] for word in words}
    is_export = (folder / WEIGHTS).exists()
    loads_weights = options["backbone"].get("train") == LORA and not is_export
    check_content(options, path, trust, trains, typed, loads_weights)
    options["overwrite"] = False  # it applied to the earlier run only
    return options


def _with_best(options: dict[str, Any], best: Path, trust: bool) -> dict[str, Any]:
    """Returns options with the values of `best.yaml`."""
    values = {str(option): value for option, value in _read_yaml(best).items()}
    check_values(values, best, trust)
    try:
        return with_options(options, values)
    except OmegaConfBaseException as error:
        raise ConfigError([f"run: {best} cannot be read: {first_line(error)}"]) from error


def check_readable(folder: Path) -> None:
    """Raises ConfigError if this user may not look into a folder that exists."""
    try:
        os.stat(folder / "config.yaml")
    except PermissionError as error:
        raise ConfigError([f"run: {folder} cannot be read: {error.strerror}"]) from error
    except (OSError, ValueError):  # there is none, or no folder can have such a name
        return


def _read_yaml(path: Path, parse: Callable[[dict[str, Any]], object] = dict) -> dict[str, Any]:
    if not os.path.exists(path):  # also a name that is too long
        check_readable(path.parent)
        hint = f"{shell_command('runs')} lists run folders"
        raise ConfigError([f"run: {path.parent} is not a run folder; {hint}"])
    try:
        parse(content := read_config(path))
        plain: Any = OmegaConf.to_container(OmegaConf.create(content))
        return plain
    except (ValueError, OmegaConfBaseException) as error:
        raise ConfigError([f"run: {path} cannot be read: {first_line(error)}"]) from error
