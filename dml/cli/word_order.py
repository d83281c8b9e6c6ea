"""Words of a command in the wrong order, such as an option before the output file."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from dml.core.errors import ConfigError
from dml.core.installation import shell_command
from dml.core.option_values import EMBEDDING_FILES


def check_order_of_embed(network: str, images: str, output: str) -> None:
    """Checks the order of the words of `dml embed`.

    Raises:
        ConfigError: an option stands before the output file, or two words are exchanged.
    """
    usage = f"{shell_command('embed')} <network> <images> <output file>"
    run = network.removeprefix("run=")  # as dml evaluate takes it
    if run != network:
        raise ConfigError([f"{network}: write {run}, without run="])
    _refuse_second_run(network, images, usage)
    for word in (network, images, output):
        is_dataset = word == images and word.startswith("data=")
        is_option = _is_option(word) and not word.endswith(EMBEDDING_FILES)
        if is_option and not is_dataset:
            raise ConfigError([f"{word}: options stand after the output file: {usage} {word}"])
    if images.endswith(EMBEDDING_FILES) and not output.endswith(EMBEDDING_FILES):
        raise ConfigError([f"{images}: the output file is the third word: {usage}"])


def check_order_of_export(run: str, folder: str) -> None:
    """Raises ConfigError if the run stands behind the folder of the export."""
    _refuse_second_run(run, folder, f"{shell_command('export')} <run> <folder>")


def check_order_of_search(file: str, queries: Sequence[str]) -> None:
    """Raises ConfigError if the file of embeddings is not the first word of `dml search`."""
    others = [query for query in queries if query.endswith(EMBEDDING_FILES)]
    if others and not file.endswith(EMBEDDING_FILES):
        usage = f"{shell_command('search')} <file> <queries>"
        raise ConfigError([f"{others[0]}: the file of embeddings is the first word: {usage}"])


def check_order_of_plan(experiment: str) -> None:
    """Raises ConfigError if an option stands before the experiment."""
    if "=" in experiment:
        usage = f"{shell_command('plan')} <experiment> {experiment}"
        raise ConfigError([f"{experiment}: options stand after the experiment: {usage}"])


def _refuse_second_run(network: str, other: str, usage: str) -> None:
    """Raises ConfigError if the second word is a run and the first one is none."""
    from dml.runs.folder.stored_run import is_run  # imported late: --help need not load it

    if not os.path.exists(Path(network, "config.yaml")) and is_run(Path(other)):
        raise ConfigError([f"{other}: the run is the first word: {usage}"])


def _is_option(word: str) -> bool:
    """Returns whether a word is an option of a network or of a dataset, and no path."""
    from dml.runs.network_options import OF_TIMM  # imported late: as above

    node = re.split(r"[.=]", word.lstrip("+"), maxsplit=1)[0]
    return "=" in word and node in (*OF_TIMM, "data") and not os.path.exists(word)
