"""What the commands share: their parser of options, and the pace of garbage collection."""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from dml.core.errors import ConfigError, nearest
from dml.core.installation import shell_command
from dml.core.outputs import folder_problem

LARGEST = 2**31 - 1  # count that an option may give
MISSING = "the following arguments are required: "  # of argparse
OUTPUTS = "outputs"  # the folder of runs in the words of training
RUNS = "--runs"  # the same in commands that read runs
SEVERAL = ("*", argparse.REMAINDER)  # numbers of words, of which there need be none


class Parser(argparse.ArgumentParser):
    """Parser of a command's options; a mistake is a line with the nearest option.

    Args:
        text: help of the command, printed as it is written.
        command: name of the command of `dml`; empty for a script, which has its file's name.
        program: name of a script with a part of its own, as in "benchmark.py losses".
    """

    def __init__(self, text: str | None, command: str = "", program: str | None = None) -> None:
        super().__init__(
            shell_command(command) if command else program,
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def parse(self, words: Sequence[str] | None) -> argparse.Namespace:
        """Returns the options of a command line, in which options and other words may be mixed.

        Args:
            words: arguments; None for those in `sys.argv`.

        Raises:
            ConfigError: an option or a value is wrong, or a word is missing or superfluous.
        """
        options, unknown = self.parse_known_intermixed_args(words)
        # Other words may be the values of options that are unknown.
        wrong = [word for word in unknown if word.startswith("-")] or unknown
        if wrong:
            raise ConfigError(self._explain(word) for word in wrong)
        self._refuse_names(options)
        return options

    def refuse_without_dashes(self, words: Sequence[str]) -> None:
        """Refuses words that are options without their dashes.

        Args:
            words: those that the command cannot use otherwise.

        Raises:
            ConfigError: a line for each such word.
        """
        hints = {word: self._add_dashes(word) for word in words}
        problems = [f"{word}: write {hint}" for word, hint in hints.items() if hint]
        if problems:
            raise ConfigError(problems)

    def print_help(self, file: Any = None) -> None:
        """Prints the help; unlike argparse, reports an output that cannot be written."""
        print(self.format_help(), end="", file=file)

    def error(self, message: str) -> NoReturn:
        """Raises ConfigError with a message of argparse."""
        if message.startswith(MISSING):
            several = [action for action in self._actions if action.nargs in SEVERAL]
            optional = {action.metavar or action.dest for action in several}
            names = message.removeprefix(MISSING).split(", ")
            required = [name for name in names if name not in optional]
            message = f"missing: {', '.join(required)}"
        line = message.removeprefix("argument ")
        raise ConfigError([f"{line}; {self.prog} --help describes the options"])

    def _refuse_names(self, options: argparse.Namespace) -> None:
        """Raises ConfigError for a word such as `output=x.npz`, which stands without a name."""
        for action in self._actions:
            value = getattr(options, action.dest, None)
            if action.option_strings or not value:
                continue
            for word in value if isinstance(value, list) else [value]:
                name, is_named, rest = str(word).partition("=")
                if is_named and name in (action.dest, action.metavar):
                    raise ConfigError([f"{word}: write {rest or f'<{name}>'}, without {name}="])

    def _add_dashes(self, word: str) -> str:
        """Returns `-k 3` for `k=3`, and `--csv` for `csv`; empty if there is no such option."""
        name, _, value = word.partition("=")
        typed = name.lower().replace("_", "-")
        for action in self._actions:
            for option in action.option_strings:
                if option.lstrip("-") != typed:
                    continue
                if action.nargs == 0:
                    return option
                value = value or str(action.metavar or "<value>")
                is_joined = str(action.metavar).startswith("=")
                return f"{option}={value.lstrip('=')}" if is_joined else f"{option} {value}"
        return ""

    def _explain(self, word: str) -> str:
        if not word.startswith("-"):
            option = self._add_dashes(word)
            hint = f"write {option}" if option else f"{self.prog} --help describes them"
            return f"'{word}' is one word too many; {hint}"
        names: list[str] = []
        for action in self._actions:
            names += action.option_strings
        name = word.partition("=")[0]
        same = [option for option in names if option.lstrip("-") == name.lstrip("-").lower()]
        hint = nearest(name, same, 0) or nearest(name, names) or f"; {self.prog} --help lists them"
        if name == f"--{OUTPUTS}" and RUNS in names:
            hint = f"; did you mean '{RUNS}'?"
        return f"{word}: no such option{hint}"


def hydra_parser(command: str) -> Parser:
    """Returns the parser of a command whose words Hydra reads, for completion only."""
    parser = Parser(None, command)
    parser.add_argument("-m", "--multirun", action="store_true")
    parser.add_argument("--cfg", choices=("job", "hydra", "all"))
    completer = partial(complete_override, config_name=command)
    set_completer(parser.add_argument("overrides", nargs="*"), completer)
    return parser


def set_completer(argument: Any, completer: Callable[..., Sequence[str]]) -> None:
    """Sets the function that completes an argument in a shell, by argcomplete."""
    argument.completer = completer


def complete_experiment(prefix: str, **context: Any) -> list[str]:
    """Returns the ids of experiments that begin with a prefix."""
    from dml.core.installation import CONFIGS

    ids = sorted(path.stem for path in CONFIGS.glob("experiment/*.yaml"))
    return [id for id in ids if id.startswith(prefix)]


def complete_override(prefix: str, config_name: str = "train", **context: Any) -> list[str]:
    """Returns the words of a config that begin with a prefix: `loss=m` gives `loss=ms`, ….

    Without `=`, the groups and the dotted names of all options; with it, the choices of a group.
    """
    from dml.config.command_line import list_choices
    from dml.config.explain import compose_config, list_options

    name, is_value, _ = prefix.partition("=")
    choices = list_choices()
    if is_value:
        words = [f"{name}={choice}" for choice in choices.get(name, ())]
    else:
        names = list(choices) + list_options(compose_config(config_name, []))
        words = [f"{name}=" for name in dict.fromkeys(names)]
    return [word for word in words if word.startswith(prefix)]


def parse_path(text: str) -> Path:
    """Returns the path in a word of the command.

    Raises:
        ArgumentTypeError: the word is empty, which `Path` takes for the current folder.
    """
    if not text:
        raise argparse.ArgumentTypeError("is empty; give a path, or . for the current folder")
    return Path(text)


def parse_folder(text: str) -> Path:
    """Returns the path of a folder, which may not exist yet.

    Raises:
        ArgumentTypeError: the word is empty, names a file, or cannot be the name of a folder.
    """
    path = parse_path(text)
    problem = folder_problem(path)
    if problem:
        raise argparse.ArgumentTypeError(problem)
    return path


def refuse_outputs(words: Sequence[str]) -> None:
    """Refuses `outputs=<folder>`, a word of training, in a command that has `--runs`.

    Raises:
        ConfigError: it is among the words.
    """
    for word in words:
        name, is_option, folder = word.lstrip("+").partition("=")
        if name == OUTPUTS and is_option:
            raise ConfigError(
                [f"{word}: is a word of training; here it is {RUNS} {folder}".rstrip()]
            )


def whole_number(least: int) -> Callable[[str], int]:
    """Returns the type of an argument that is a whole number from `least` to `LARGEST`."""

    def parse(text: str) -> int:
        is_whole = text.isascii() and text.isdecimal()
        if not is_whole or len(text) > len(str(LARGEST)) or not least <= int(text) <= LARGEST:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a whole number from {least} to {LARGEST:,}"
            )
        return int(text)

    return parse


def rarely_collect_garbage() -> None:
    """Makes garbage collection rare.

    A table of runs is many objects that live until the end: looking for garbage among them takes a
    fifth of the time.
    """
    gc.set_threshold(200_000)
