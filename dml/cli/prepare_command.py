"""Command that prepares a dataset: `dml prepare`."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dml.cli.error_lines import print_error
from dml.cli.parser import Parser, complete_override, parse_path, set_completer
from dml.cli.prepare_for import NO_FILE, prepare_for
from dml.cli.shared_options import check_folder
from dml.core.counts import count_of, verb_for
from dml.core.errors import ConfigError, UserError, nearest
from dml.core.installation import shell_command
from dml.core.missing_paths import describe_missing
from dml.core.plain_text import print_plain
from dml.core.tolerant_output import tolerant_output

if TYPE_CHECKING:  # otherwise imported late: --help need not load it
    from dml.data.image_index import ImageIndex

DESCRIPTION = """\
Prepares a dataset: {command} cub

Downloads (or uses --archive FILE), verifies, unpacks, counts and decodes all images, after it has
fetched the weights of the dataset's default network. A second call does nothing; after an
interruption the same command continues. Where DML_MIRROR=<folder or address> holds a file by its
name, it is taken from there. emoji and shapes are rendered in a clone of the project, by python
studies/prepare_drawings.py.

  {command} for experiment=mft_table1     everything that these runs need (words of train);
                                              --check or --list instead of downloading
  {command} weights --compare FILE FILE   the largest difference of two files of weights
"""
PUBLISHED = ("cub", "cars", "sop", "inshop", "inat")
OF_ALL = ("cub", "cars", "sop", "inshop")  # prepared by `all`, which leaves out 120 GB
RENDERED = ("emoji", "shapes")
DATASETS = PUBLISHED + RENDERED + ("glyphs", "digits", "folder")
ALL, WEIGHTS = "all", "weights"  # the datasets of `OF_ALL`; networks alone
FOR = "for"  # what the runs of a command need
CHOICES = (*DATASETS, ALL, WEIGHTS, FOR)
DATA = Path("data")
NETWORK = "bn_inception"  # the default of the published datasets
NETWORKS = {"inat": "resnet50"}  # of those with another one


def parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(DESCRIPTION.format(command=shell_command("prepare")), "prepare")
    add, several = parser.add_argument, partial(parser.add_argument, action="append", default=[])
    set_completer(add("dataset", help=" | ".join(CHOICES)), lambda **context: CHOICES)
    words = add("words", nargs="*", metavar="option=value", help="with for: options of dml train")
    set_completer(words, complete_override)
    add("--root", type=parse_path, default=DATA, help="folder of datasets (default: data)")
    several(
        "--archive", type=parse_path, help="a local file, or the folder of several; may be repeated"
    )
    several("--url", metavar="FILE=ADDRESS", help="download a file from elsewhere; may be repeated")
    several("--backbone", metavar="NAME", help="fetch the weights of this network; may be repeated")
    add("--compare", nargs=2, metavar="FILE", help="with weights: compare two files of weights")
    add("--no-weights", action="store_true", help="fetch no weights with the dataset")
    add("--list", action="store_true", help="print files and addresses; download nothing")
    add("--check", action="store_true", help="decode every image that is present")
    return parser


def main(words: Sequence[str]) -> int:
    """Runs the command and returns its exit status: 0 if all is ready."""
    command = parser()
    options = command.parse(words)
    command.refuse_without_dashes(_list_prepare_words(options))
    _check_options(options)
    _run(options)
    return 0


def _list_prepare_words(options: Namespace) -> list[str]:
    """Returns the words that are no options of training."""
    if options.dataset != FOR:
        return [options.dataset, *options.words]
    return [word for word in options.words if "=" not in word]  # not backbone=resnet50


def _run(options: Namespace) -> None:
    """Does what checked options ask for."""
    name = options.dataset
    if name == FOR:
        prepare_for(options.words, options.list, options.check)
    elif options.compare:
        _compare(*options.compare)
    elif options.list:
        _list_files(name)
    elif name == WEIGHTS:
        _fetch_weights(options.backbone or [NETWORK])
    elif options.check:
        _check(name, options.root)
    elif name == ALL:
        _prepare_all(options)
    elif name in PUBLISHED:
        _prepare(options, name)
    elif name in RENDERED:
        raise UserError(
            f"{name} is rendered in a clone of the project, by python "
            f"studies/prepare_drawings.py {name}; data={name} data.root=<folder> reads the result"
        )
    else:
        index = read_dataset(name, options.root)
        print_plain(f"{name}: {count_of(len(index.images), 'image')}, nothing to download")


def _check_options(options: Namespace) -> None:
    """Raises ConfigError for an unknown dataset, or for options that it does not have."""
    name = options.dataset
    _check_words(options)
    is_prepared = name in PUBLISHED and not options.check
    if (options.archive or options.url) and not is_prepared:
        raise ConfigError([f"--archive and --url are for preparing {', '.join(PUBLISHED)}"])
    _check_root(options)
    _check_modes(options)
    chooses_weights = options.backbone or options.no_weights
    if chooses_weights and options.check:
        raise ConfigError(["--backbone and --no-weights: --check looks at the dataset alone"])
    if chooses_weights and name not in (*PUBLISHED, ALL, WEIGHTS):
        names = ", ".join((*PUBLISHED, ALL))
        raise ConfigError([f"--backbone and --no-weights are for {names} and {WEIGHTS}"])


def _check_root(options: Namespace) -> None:
    """Raises ConfigError for a folder of images that is missing."""
    is_pattern = "*" in str(options.root)
    if options.dataset == "folder" and not is_pattern and not os.path.exists(options.root):
        problem = describe_missing(options.root, "give the folder or CSV file of your images")
        raise ConfigError([f"--root: {problem}"])


def _check_words(options: Namespace) -> None:
    """Raises ConfigError for an unknown dataset, options of `for` elsewhere, or others there."""
    if options.dataset not in CHOICES:
        raise ConfigError([f"'{options.dataset}' is not a dataset{_advise(options)}"])
    if options.list and options.check:
        raise ConfigError(["--list: is not combined with --check"])
    if options.dataset == FOR:
        if options.root != DATA:
            raise ConfigError(["--root: prepare for takes data.root=<folder>"])
    elif options.words:
        words = " ".join(options.words)
        if set(options.words) <= set(CHOICES):
            raise ConfigError([f"{words}: one dataset at a time, or all"])
        root = words.removeprefix("data.root=")
        if root != words or os.path.isdir(root):
            raise ConfigError([f"{words}: write --root {root}"])
        raise ConfigError([f"{words}: options of train are for prepare for"])


def _advise(options: Namespace) -> str:
    """Returns what to write instead of a word that is not a dataset."""
    word, prepare = options.dataset, shell_command("prepare")
    name, is_option, choice = word.partition("=")
    if is_option and FOR not in options.words and name == "data" and choice in CHOICES:
        return f"; write {prepare} {choice}"
    if is_option:
        return f"; write {prepare} {FOR} {word}"
    if set(word.split(",")) <= set(CHOICES):
        return "; one dataset at a time, or all"
    return nearest(word, CHOICES) or f"; one of {', '.join(CHOICES)}"


def _check_modes(options: Namespace) -> None:
    """Raises ConfigError for `--list`, `--check` or `--compare` where it has no meaning."""
    name = options.dataset
    if options.compare and (name != WEIGHTS or options.list or options.backbone):
        raise ConfigError(["--compare: is for prepare weights --compare FILE FILE alone"])
    if options.list and name not in (*PUBLISHED, ALL, FOR):
        raise ConfigError([f"--list: is for {', '.join(PUBLISHED)}, all and for"])
    if options.check and name in (ALL, WEIGHTS):
        raise ConfigError([f"--check: is for one dataset, not for {name}"])


def _compare(first: str, second: str) -> None:
    from dml.models.weight_comparison import compare_files  # imported late: it loads torch

    for line in compare_files(first, second).describe():
        print_plain(line)


def _list_files(name: str) -> None:
    from dml.data.preparation.prepare import describe_files
    from dml.data.preparation.sources import SOURCES

    for dataset in OF_ALL if name == ALL else (name,):
        print_plain(f"{dataset}:")
        for line in describe_files(SOURCES[dataset]):
            print_plain(f"  {line}")


def _fetch_weights(backbones: Sequence[str]) -> None:
    """Downloads the weights of networks, unless they are there.

    Raises:
        ConfigError: there is no such network.
        UserError: the weights cannot be had.
    """
    from dml.runs.build import fetch_weights  # imported late: it loads torch

    for backbone in backbones:
        has_file = fetch_weights(backbone)
        state = "ready" if has_file else NO_FILE
        print_plain(f"weights of {backbone}: {state}", flush=True)


def _fetch_first(backbones: Sequence[str]) -> None:
    """Downloads weights before a dataset: what fails here has cost no gigabyte."""
    try:
        _fetch_weights(backbones)
    except UserError as error:
        raise UserError(f"{error}; --no-weights prepares the dataset alone") from error


def _prepare_all(options: Namespace) -> None:
    """Prepares the published datasets but the largest; one that fails does not stop the others.

    Raises:
        UserError: one of them failed; after all others.
    """
    failed = []
    for name in OF_ALL:
        try:
            _prepare(options, name)
        except UserError as error:
            print_error(error)
            failed.append(name)
    if failed:
        raise UserError(f"not ready: {', '.join(failed)}")


def read_dataset(name: str, root: Path) -> ImageIndex:
    """Returns the index of a dataset of `DATASETS` below `root`."""
    from dml.data.preparation.sources import SOURCES
    from dml.data.readers.digits import read_digits
    from dml.data.readers.emoji import read_emoji
    from dml.data.readers.folder import read_folder
    from dml.data.readers.glyphs import read_glyphs
    from dml.data.readers.shapes import read_shapes

    if name in SOURCES:
        return SOURCES[name].read(root)
    if name == "digits":
        return read_digits()
    readers: dict[str, Callable[[Path], ImageIndex]] = {
        "emoji": read_emoji,
        "shapes": read_shapes,
        "glyphs": read_glyphs,
        "folder": read_folder,
    }
    return readers[name](root)


def _check(name: str, root: Path) -> None:
    """Decodes all images of a dataset and prints what is wrong with them."""
    index = read_dataset(name, root)
    from dml.data.image_index import describe_images
    from dml.data.preparation.image_check import (  # imported late: it loads torch
        describe_pair,
        first_of_classes,
        inspect_images,
    )

    is_sampled = _is_sampled(name)
    if is_sampled:
        images = count_of(len(index.images), "image")
        are = verb_for(len(index.images), "is", "are")
        print_plain(f"{name}: {images} {are} there; decoding one of each class")
        index = first_of_classes(index)
    upright = name == "folder"  # as data=folder reads them
    checked, problems, copies = inspect_images(replace(index, apply_orientation=upright))
    for note in describe_images(checked):
        print_plain(f"note: {note}")
    if name == "folder" and copies:
        for first, other in copies:
            print_plain(f"equal: {describe_pair(first, other)}")
        print_plain("remove each from the class where it is wrong")
    if problems:
        advice = "replace them"
        if name == "folder":
            advice += ", or leave them out by data.skip_corrupt=true"
        count = f"{index.name}: {len(problems)} of {len(index.images):,} images are damaged"
        raise UserError("\n".join([*problems, f"{count}; {advice}"]))
    share = "one image of each class" if is_sampled else f"all {len(index.images):,} images"
    print_plain(f"{name}: {share} can be decoded")


def _is_sampled(name: str) -> bool:
    """Returns whether a check decodes only an image of each class of a dataset."""
    from dml.data.preparation.sources import SOURCES

    return name in SOURCES and SOURCES[name].is_sampled


def _prepare(options: Namespace, name: str) -> None:
    check_folder(str(options.root), "--root")
    for archive in options.archive:
        if not os.path.exists(archive):
            raise UserError(f"--archive {archive} does not exist")
    from dml.data.preparation.prepare import prepare, read_urls  # imported late: it loads torch
    from dml.data.preparation.sources import SOURCES

    read_urls(SOURCES[name], options.url)  # before weights are downloaded
    with tolerant_output():
        if not options.no_weights:
            _fetch_first(options.backbone or [NETWORKS.get(name, NETWORK)])
        prepare(SOURCES[name], options.root, options.archive, options.url)
