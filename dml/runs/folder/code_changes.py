"""What a run folder and today's files of the user say about each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dml.config.own_code import NODE, file_of, find_changed
from dml.config.schema import Config
from dml.core.counts import verb_for
from dml.core.errors import ConfigError
from dml.runs.folder.run_folder import RunFolder
from dml.runs.folder.stored_run import StoredRun, read_run


def find_code_notes(folder: RunFolder, config: Config) -> Iterator[str]:
    """Yields why a run that starts now is not the one that the same command made before.

    Args:
        folder: of the run; nothing is yielded once it holds a config.
        config: of the run.
    """
    code = config.code
    if not code or folder.config.exists():
        return
    options = _without_code(config.identity)
    runs = [read_run(path) for path in folder.path.parent.glob(f"seed{config.seed}-*")]
    same = [run for run in runs if run.options and _without_code(run.options) == options]
    if not same:
        return
    latest = max(same, key=lambda run: run.written)
    yield f"{_describe_change(latest, code)}; this is a run of its own"


def _describe_change(run: StoredRun, code: Mapping[str, str]) -> str:
    stored = run.content.get(NODE) or {}
    if not stored:
        return f"{run.folder.name} does not say which code it was trained with"
    modules = sorted(stored.keys() | code.keys())
    changed = [file_of(name) for name in modules if stored.get(name) != code.get(name)]
    return f"{_say_changed(changed)} since {run.folder.name} was trained"


def _without_code(options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in options.items()
        if value != {} and not name.startswith(f"{NODE}.")
    }


def describe_changed_code(code: Mapping[str, str], source: str | Path) -> str:
    """Returns a warning if the user's files differ from those that a run was trained with.

    It is empty if none differs. Files that do not exist here are not compared.

    Args:
        code: node `code` of the run's config: module → hash of its source.
        source: folder of the run.
    """
    changed = find_changed(dict(code))
    if not changed:
        return ""
    return f"{_say_changed(changed)} since {source} was trained"


def refuse_changed_code(folder: RunFolder, config: Config) -> str:
    """Returns a warning if a finished run was trained with other code, else nothing.

    Raises:
        ConfigError: the run would train with other code than before.
    """
    changed = describe_changed_code(config.code, folder.path.name)
    trains = config.overwrite or not folder.summary.exists()
    if changed and trains:
        changed = changed.replace("was trained", "was started")
        raise ConfigError(
            [f"resume: {changed}; undo the change, or repeat the command for a run of its own"]
        )
    return changed


def _say_changed(files: Sequence[str]) -> str:
    verb = verb_for(len(files), "has", "have")
    return f"{', '.join(files)} {verb} changed"
