"""Options that several commands share: the model of a run, trust, and replaced outputs."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from dml.cli.parser import whole_number
from dml.core.errors import ConfigError, UserError, first_line
from dml.core.installation import shell_command
from dml.core.outputs import folder_problem


def add_overwrite(parser: ArgumentParser, ours: str) -> None:
    """Adds `--overwrite`.

    Args:
        parser: of the command.
        ours: which files are replaced without it, as in "of the same network".
    """
    text = f"replace any file (default: only one {ours})"
    parser.add_argument("--overwrite", action="store_true", help=text)


def add_model(parser: ArgumentParser) -> None:
    """Adds `--repeat` and `--fold`, which choose one of several models of a run."""
    for name in ("repeat", "fold"):
        text = f"number of the {name}, from 0, of a run with several models"
        parser.add_argument(f"--{name}", type=whole_number(0), metavar="N", help=text)


def add_trust(parser: ArgumentParser, named: str) -> None:
    """Adds `--trust`; `named` is what the user trusts, as in "the run"."""
    text = f"{named} may name any class or function"
    parser.add_argument("--trust", action="store_true", help=text)


def add_current_folder() -> None:
    """Lets options name classes in files of the current folder."""
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)  # installed packages take precedence


def check_network(network: str, trust: bool) -> None:
    """Reads the config of a run, or of an exported folder, before torch is loaded.

    Args:
        network: run folder or exported folder; of `hf:<user>/<name>` the name is checked, and
            `timm:<model>` is not.
        trust: the user trusts the folder.

    Raises:
        ConfigError: the folder has no config, or a wrong one.
    """
    # imported late: --help need not load them
    from dml.config.stored_network import HUB, TIMM, parse_hub_name
    from dml.runs.folder.run_folder import load_options

    if network.startswith(HUB):
        parse_hub_name(network)
    elif not network.startswith(TIMM):
        load_options(network, trust)


def check_folder(path: str, name: str) -> None:
    """Raises ConfigError if a path cannot be a folder, which may not exist yet.

    Args:
        path: of the folder.
        name: of the argument.
    """
    problem = folder_problem(path)
    if problem:
        raise ConfigError([f"{name}: {problem}; give a folder, which may not exist yet"])


def check_embeddings(path: str) -> None:
    """Checks that there is a file of embeddings, before torch is loaded.

    Raises:
        UserError: there is no such file.
    """
    from dml.core.missing_paths import describe_missing  # imported late: as above
    from dml.core.regular_files import check_regular, is_shell_pipe

    if is_shell_pipe(path):
        return
    try:
        check_regular(path)
    except FileNotFoundError as error:
        raise UserError(f"embeddings: {describe_missing(path)}") from error
    except OSError as error:
        problem = f"embeddings: {path} cannot be read ({first_line(error)})"
        if os.path.isdir(path):
            problem += f"; {shell_command('embed')} makes a file of embeddings of a folder"
        raise UserError(problem) from error


def check_images(images: str) -> None:
    """Checks that there are images, before torch is loaded; a dataset is not checked.

    Raises:
        UserError: there is no such file or folder.
    """
    if images.startswith("data=") or os.path.exists(images):
        return
    from dml.data.readers.folder import list_images  # imported late: it loads pandas

    list_images(images)  # it says what is wrong


def refuse_empty(options: Mapping[str, Any]) -> None:
    """Raises ConfigError for an empty text, which would be the current folder."""
    for name, value in options.items():
        texts = value if isinstance(value, list) else [value]
        if "" in texts:
            raise ConfigError([f"{name}: is empty; give it a name"])
