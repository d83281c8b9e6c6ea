"""Datasets and weights that the runs of a command need: `dml prepare for experiment=mft_table1`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dml.cli.error_lines import print_error
from dml.core.counts import count_of
from dml.core.errors import ConfigError, UserError
from dml.core.plain_text import print_plain
from dml.core.tolerant_output import tolerant_output

if TYPE_CHECKING:  # otherwise imported late: it loads torch
    from dml.runs.build import Builder


NO_FILE = "no file to download"


@dataclass
class Needs:
    """What the runs of a command need, each once.

    Attributes:
        runs: their number.
        datasets: name → builder of a run with this dataset; at two places it is there twice.
        networks: name → builder of a run with these weights.
    """

    runs: int = 0
    datasets: dict[tuple[str, str], Builder] = field(default_factory=dict)
    networks: dict[tuple[str, str], Builder] = field(default_factory=dict)


def prepare_for(words: Sequence[str], lists: bool, checks: bool) -> None:
    """Prints what the runs of a command need, with sizes, and prepares or checks it.

    Args:
        words: of `train`.
        lists: print the files and their addresses instead; nothing is downloaded or asked.
        checks: read what is there instead; nothing is downloaded.

    Raises:
        ConfigError: wrong options, a line each.
        UserError: something cannot be had, or is not there; after everything else.
    """
    from dml.config.schema import for_another_machine
    from dml.core.download import without_requests

    with for_another_machine():  # a login node prepares what a GPU trains
        needs = _find_needs(words)
    networks, datasets = len(needs.networks), len(needs.datasets)
    print_plain(f"runs: {needs.runs:,}, datasets: {datasets}, networks: {networks}")
    with tolerant_output():
        if lists:
            _list_files(needs)
        elif checks:
            with without_requests():
                _do_all(needs, "there", _read)
        else:
            _print_sizes(needs)
            _do_all(needs, "ready", _prepare)


def _find_needs(words: Sequence[str]) -> Needs:
    """Returns what the runs of a command need.

    Raises:
        ConfigError: wrong options, a line each.
    """
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from dml.cli.shared_options import add_current_folder
    from dml.config.command_line import refuse_empty, refuse_repeated
    from dml.config.explain import explain

    if not words:
        raise ConfigError(["for: name the runs, such as experiment=mft_table1 or data=cub"])
    add_current_folder()  # networks and readers of the user
    refuse_repeated(words)
    refuse_empty(words)
    _check_experiment(words)
    try:
        return _collect(words)
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise ConfigError(explain(words, "train") or [str(error).splitlines()[0]]) from error


def _check_experiment(words: Sequence[str]) -> None:
    """Raises ConfigError for an experiment that does not exist or that a script draws."""
    from dml.results.catalog import find_problem, load_experiment

    for word in words:
        name = word.removeprefix("experiment=")
        if name == word:
            continue
        problem = find_problem(name)
        if problem:
            raise ConfigError([problem])
        about = load_experiment(name)
        if not about.trains:
            raise ConfigError(
                [f"experiment: {name} trains nothing and needs no preparation: run {about.script}"]
            )


def _collect(words: Sequence[str]) -> Needs:
    from dml.config.check import check
    from dml.config.compositions import compose_config, compose_jobs
    from dml.runs.build import Builder

    needs = Needs()
    for overrides, options in compose_jobs(*words):
        needs.runs += 1
        dataset = options.data.name, _key(options.data.reader)
        network = options.backbone.name, _network_key(options.backbone)
        if dataset in needs.datasets and network in needs.networks:
            continue
        builder = Builder(check(compose_config(overrides)))
        needs.datasets.setdefault(dataset, builder)
        needs.networks.setdefault(network, builder)
    return needs


def _network_key(backbone: dict[str, Any]) -> str:
    """Returns what decides which file of weights a network needs."""
    return _key([backbone.get(name) for name in ("_target_", "model", "weights")])


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _list_files(needs: Needs) -> None:
    """Prints every file and its addresses."""
    from dml.data.preparation.prepare import describe_files
    from dml.data.preparation.sources import SOURCES

    for (name, _), builder in needs.networks.items():
        file = builder.describe_weights()
        print_plain(f"weights of {name}:")
        if file is None:
            print_plain(f"  {NO_FILE}")
            continue
        print_plain(f"  {file.name}{_describe_place(file.path)}")
        for source in file.sources:
            print_plain(f"    {source}")
    for name, _ in needs.datasets:
        print_plain(f"{name}:")
        lines = [NO_FILE]
        if name in SOURCES:
            lines = describe_files(SOURCES[name])
        for line in lines:
            print_plain(f"  {line}")


def _describe_place(path: Path | None) -> str:
    return "" if path is None else f"  there: {path}"


def _print_sizes(needs: Needs) -> None:
    """Prints the size of each file that has to be downloaded, and their sum."""
    sizes = []
    asks = True
    for (name, _), builder in needs.networks.items():
        file = builder.describe_weights()
        if file is None or file.path is not None:
            continue
        size = file.measure() if asks else None
        asks = size is not None  # one silent server is enough
        sizes.append(size)
        print_plain(f"weights of {name}: {file.name}, {_describe_size(size)}", flush=True)
    for (name, _), builder in needs.datasets.items():
        for file_name, size in _missing_files(name, builder):
            sizes.append(size)
            print_plain(f"{name}: {file_name}, {_describe_size(size)}")
    known = [size for size in sizes if size is not None]
    unknown = len(sizes) - len(known)
    print_plain(f"to download: {_describe_size(sum(known))}", flush=True)
    if unknown:
        print_plain(f"files of unknown size: {unknown}", flush=True)


def _missing_files(name: str, builder: Builder) -> list[tuple[str, int | None]]:
    """Returns name and size of the files of a dataset that has to be downloaded."""
    from dml.data.preparation.sources import SOURCES

    if name not in SOURCES:
        return []
    try:
        builder.read_dataset()
    except UserError:
        return [(file.name, file.size) for file in SOURCES[name].files]
    return []


def _describe_size(size: int | None) -> str:
    return "size unknown" if size is None else f"{size:,} bytes"


def _do_all(needs: Needs, state: str, work: Callable[[str, Builder], None]) -> None:
    """Does something with all networks, and then with all datasets, which are larger.

    Raises:
        UserError: it failed for one of them; after all others.
    """
    failed = []
    for (name, _), builder in needs.networks.items():
        try:
            builder.check_weights()
            has_file = builder.describe_weights() is not None
            shown = state if has_file else NO_FILE
            print_plain(f"weights of {name}: {shown}", flush=True)
        except UserError as error:
            print_error(error)
            failed.append(f"weights of {name}")
    for (name, _), builder in needs.datasets.items():
        try:
            work(name, builder)
        except UserError as error:
            print_error(error)
            failed.append(name)
    sys.stderr.flush()
    if failed:
        raise UserError(f"not {state}: {', '.join(failed)}")


def _prepare(name: str, builder: Builder) -> None:
    """Downloads a published dataset, or reads another one, which may draw it."""
    from dml.data.preparation.prepare import prepare
    from dml.data.preparation.sources import SOURCES

    if name in SOURCES:
        prepare(SOURCES[name], Path(builder.config.data.root))
    else:
        _read(name, builder)


def _read(name: str, builder: Builder) -> None:
    """Reads the index of a dataset, which counts its files."""
    images = count_of(len(builder.read_dataset().labels), "image")
    print_plain(f"{name}: {images}", flush=True)
