"""Words of a command that are neither flags nor of the form option=value, and flags of others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from dml.config.command_line import FLAGS_WITH_VALUE
from dml.core.installation import shell_command

Suggest = Callable[[str, str], str]  # option, value → hint


def explain_stray_words(
    words: Sequence[str], choices: Mapping[str, Sequence[str]], suggest: Suggest
) -> Iterator[str]:
    """Yields a line for each stray word, two of them for `lr 0.1` and three for `lr = 0.1`.

    Args:
        words: of the command line, flags among them.
        choices: group → its choices.
        suggest: returns the hint for an option with a value, empty if there is none.
    """
    place = 0
    while place < len(words):
        word, after = words[place], words[place + 1 : place + 3]
        is_value = place > 0 and words[place - 1] in FLAGS_WITH_VALUE
        place += 1
        if word[:1] in ("-", "~") or "=" in word or is_value:
            continue
        if after[:1] == ["="]:
            place += 2
            hint = suggest(word, after[-1]) if len(after) == 2 else ""
            yield f"{word} = …: an option has no blanks around ={hint}"
            continue
        name, _, value = word.partition(":")
        hint = _describe_known_word(word, choices) or (value and suggest(name, value))
        if not hint and after and "=" not in after[0] and after[0][:1] not in ("-", "~"):
            hint = suggest(word, after[0])
            place += bool(hint)
        yield f"{word or repr(word)}: not of the form option=value{hint}"


def _describe_known_word(word: str, choices: Mapping[str, Sequence[str]]) -> str:
    """Returns the hint for a choice without its group, or for a folder; empty for others."""
    groups = [group for group, names in choices.items() if word in names]
    if groups:
        return "; write " + " or ".join(f"{group}={word}" for group in groups)
    if (Path(word) / "config.yaml").is_file():
        return f"; write resume={word}, or {shell_command('evaluate')} run={word}"
    return f"; write data=folder data.root={word}" if word and Path(word).is_dir() else ""
