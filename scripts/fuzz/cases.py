"""Random wrong commands: each is a form of `scripts.fuzz.commands` in which a few words are odd."""

from __future__ import annotations

import random
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from scripts.fuzz.commands import COMMANDS, JUNK, KINDS, Command

NUMBERS_OF_CHANGES = (1, 1, 1, 2, 2, 3)


@dataclass(frozen=True)
class Word:
    """A word of a command: a value, a flag, or an option with its value.

    Attributes:
        name: of the option or flag; empty for a value alone.
        value: None for a flag; empty where an option is still without one.
        kind: of values that may replace it; empty: none.
    """

    name: str
    value: str | None
    kind: str = ""

    def typed(self) -> list[str]:
        """Returns it as a shell would pass it."""
        if self.value is None:
            return [self.name]
        if self.name.startswith("-"):
            return [self.name, self.value]
        return [f"{self.name}={self.value}" if self.name else self.value]


def read_words(text: str) -> list[Word]:
    """Returns the words in a form of `scripts.fuzz.commands`, or in what a command also takes."""
    return [_read_word(word) for word in text.split()]


def _read_word(text: str) -> Word:
    text, _, kind = text.partition(":")
    name, has_value, value = text.partition("=")
    if has_value:
        return Word(name, value, kind)
    if name.startswith("-") and not kind:
        return Word(name, None)
    return Word("", name, kind)


@dataclass(frozen=True)
class Case:
    """A command with its words.

    Attributes:
        name: of the command.
        command: see there.
        words: of the command line.
        wrong: whether a word is known to be wrong.
    """

    name: str
    command: Command
    words: tuple[str, ...]
    wrong: bool

    @property
    def line(self) -> str:
        """The command as it would be typed, odd characters as escapes."""
        return ascii(f"{self.name}: {shlex.join(self.words)}")


class Draft:
    """A command that is being changed.

    Attributes:
        words: of its form, and those that were added.
        more: options and flags that may be added.
        wrong: whether a word is known to be wrong.
    """

    def __init__(self, command: Command, chance: random.Random) -> None:
        self.command, self.chance = command, chance
        self.words, self.more = read_words(command.form), read_words(command.more)
        self.wrong = command.fails

    def replace_value(self) -> None:
        """Gives a word an odd value."""
        places = [place for place, word in enumerate(self.words) if word.kind]
        if places:
            place = self.chance.choice(places)
            self.words[place] = self._odd(self.words[place])

    def add_option(self) -> None:
        """Adds an option with an odd value, or a flag."""
        if self.more:
            word = self.more.pop(self.chance.randrange(len(self.more)))
            self.words.append(self._odd(word) if word.kind else word)

    def repeat_option(self) -> None:
        """Contradicts an option: adds it again with another value, of which the last counts."""
        places = [place for place, word in enumerate(self.words) if word.name and word.kind]
        if places:
            place = self.chance.choice(places)
            word = self.words[place]
            self.words[place] = replace(word, kind="")  # it has no effect
            self.words.append(self._odd(word))

    def add_superfluous(self) -> None:
        """Adds an option of another command, in front of its own, which count if it knows it."""
        other = self.chance.choice([*COMMANDS.values()])
        options = [word for word in read_words(f"{other.form} {other.more}") if word.name]
        if options:
            word = self.chance.choice(options)
            word = self._odd(word, judge=False) if word.value == "" else word
            self.words.insert(0, replace(word, kind=""))

    def add_junk(self) -> None:
        """Adds a word that no command knows."""
        self.words.append(Word("", self.chance.choice(JUNK)))
        self.wrong = True

    def drop_word(self) -> None:
        """Leaves a word out, while all others are as they were."""
        places = [place for place, word in enumerate(self.words) if word.kind and not word.name]
        if places and not self.wrong:
            del self.words[places[-1]]
            self.wrong = self.command.needs_all

    def _odd(self, word: Word, judge: bool = True) -> Word:
        """Returns a word with an odd value, which is not changed again."""
        kind = KINDS[word.kind]
        value = self.chance.choice((*kind.wrong, *kind.odd))
        if judge and value in kind.wrong:
            self.wrong = True
        return replace(word, value=value, kind="")


CHANGES = {
    Draft.replace_value: 5,
    Draft.add_option: 3,
    Draft.add_junk: 1,
    Draft.repeat_option: 1,
    Draft.add_superfluous: 1,
    Draft.drop_word: 1,
}


def make_case(seed: int, number: int, names: Sequence[str] = tuple(COMMANDS)) -> Case:
    """Returns the command of a number; the same for the same seed and names."""
    chance = random.Random(f"{seed}-{number}")
    (name,) = chance.choices(names, [COMMANDS[one].share for one in names])
    draft = Draft(COMMANDS[name], chance)
    for _ in range(chance.choice(NUMBERS_OF_CHANGES)):
        (change,) = chance.choices([*CHANGES], [*CHANGES.values()])
        change(draft)
    words = []
    for word in draft.words:
        words += word.typed()
    return Case(name, COMMANDS[name], tuple(words), draft.wrong)
