"""The runs that a user names: one by its id, name or folder, several by conditions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path

from dml.core.errors import ConfigError, UserError, nearest
from dml.core.installation import shell_command
from dml.results.frame import NAMES, Runs, format_option, make_runs, one_per_run
from dml.runs.folder.stored_run import State, find_unreadable, is_run, read_run


def find_run(word: str, runs: Runs) -> Runs:
    """Returns the run with an id, the beginning of an id, a `name=`, or a folder, as one row.

    Raises:
        UserError: no run, or several.
    """
    if word and find_unreadable(Path(word)):
        raise UserError(f"runs: {word} cannot be read: permission denied")
    if is_run(Path(word)):
        run = make_runs([read_run(Path(word))])
        return run.select(one_per_run(run.table))
    table = runs.table
    matching = table[(table.id == word) | (table["name"] == word)]
    if matching.empty:
        matching = table[table.id.str.startswith(word)]
    if matching.empty or not word:
        hint = f"{shell_command('runs')} lists them"
        raise UserError(f"runs: '{word}' is neither the id, name or folder of a run; {hint}")
    if len(matching) > 1:
        ids = ", ".join(matching.id)
        raise UserError(f"runs: '{word}' means several runs: {ids}; type one of these ids")
    return runs.select(matching)


def select_runs(runs: Runs, words: Sequence[str]) -> Runs:
    """Returns the runs that meet all conditions: `loss=ms,mf*` `state=finished` `epochs=60`.

    A name is `state`, `id`, a group, or an option: its dotted name or the last part of it. A run
    meets a condition if it has any of the values, in which `*` stands for any characters.

    Raises:
        ConfigError: a name that no run has, or a state that does not exist.
    """
    for word in words:
        name, _, wanted = word.partition("=")
        texts = _option_texts(runs, name)
        if not any(texts) and not runs.table.empty:
            hint = _suggest_option(runs, name)
            raise ConfigError([f"{name}: no run has such an option{hint}"])
        values = wanted.split(",")
        if name == "state":
            _check_states(values)
        is_chosen = [_has_value(texts_of_run, values) for texts_of_run in texts]
        runs = runs.select(runs.table.loc[is_chosen])
    return runs


def _option_texts(runs: Runs, name: str) -> list[list[str]]:
    """Returns the values of a name, as texts, for each run.

    A column has one value per run. An option is meant by its dotted name or the last parts of it:
    a run without such an option has no value, and a run with several has them all.
    """
    if name in ("state", "id", *NAMES):
        return [[str(value)] for value in runs.table[name]]
    texts = []
    for options in runs.options:
        texts_of_run = []
        for option, value in options.items():
            if option == name or option.endswith(f".{name}"):
                texts_of_run.append(format_option(value))
        texts.append(texts_of_run)
    return texts


def _suggest_option(runs: Runs, name: str) -> str:
    """Returns the end of a message about a name that no run has."""
    names = set(NAMES)
    for options in runs.options:
        for option in options:
            names.add(option)
            names.add(option.rpartition(".")[2])
    return nearest(name, names) or "; filter by state, loss, seed, or any option"


def _has_value(texts: Sequence[str], values: Sequence[str]) -> bool:
    return any(_is_equal(text, value) for text, value in product(texts, values))


def _check_states(values: Iterable[str]) -> None:
    """Raises ConfigError for a value, without `*`, that is no state of a run."""
    states = [str(state) for state in State]
    for value in values:
        if "*" not in value and value.lower() not in states:
            hint = nearest(value.lower(), states) or f"; one of {', '.join(states)}"
            raise ConfigError([f"state: '{value}' does not exist{hint}"])


def _is_equal(text: str, value: str) -> bool:
    try:
        return float(text) == float(value)
    except ValueError:
        return fnmatchcase(text.lower(), value.lower())
