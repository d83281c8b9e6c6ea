"""Code points of the drawings of nine emoji sets, each of which names its drawings differently."""

from __future__ import annotations

import csv
import json
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dml.core.errors import UserError, first_line
from studies.emoji.sets import SETS, EmojiSet

MOZILLA_TABLE = Path(__file__).with_name("mozilla.csv")
# Drawings of something else than their names say, seen among the other drawings of their classes.
MISNAMED = {
    ("emojione-v1", "keyboard"),  # of a piano
    ("fxemoji", "heartblue"),  # cut off by its own frame
    ("streamline-emojis", "right-anger-bubble"),  # a thought balloon
    ("streamline-emojis", "turkey"),  # the flag of the country
}
NO_CODE = -1
CodesByName = dict[str, set[int]]


@dataclass(frozen=True)
class SetContent:
    """The parts of a package that are used.

    Attributes:
        icons: the package's `icons.json`.
        codes: hexadecimal code points, joined by `-` → name of the drawing; may be empty.
        groups: name of a group, such as `Food & Drink` → names of its drawings.
    """

    icons: Mapping[str, Any]
    codes: Mapping[str, str]
    groups: Mapping[str, list[str]]

    def aliases(self) -> dict[str, str]:
        """Returns other names of drawings → their names; without mirrored and turned ones."""
        found = self.icons.get("aliases", {}).items()
        return {alias: entry["parent"] for alias, entry in found if set(entry) == {"parent"}}


@dataclass(frozen=True)
class EmojiNames:
    """Drawings by code point.

    Attributes:
        drawings: set → code point → name of the drawing in the set.
        names: code point → name.
        groups: code point → group.
    """

    drawings: dict[str, dict[int, str]]
    names: dict[int, str]
    groups: dict[int, str]


def read_set(folder: Path) -> SetContent:
    """Reads an unpacked package.

    Raises:
        UserError: it is not such a package.
    """
    try:
        icons, codes, metadata = (
            json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
            for name in ("icons", "chars", "metadata")
        )
        content = SetContent(icons, dict(codes), metadata.get("categories", {}))
        if not all("body" in icon for icon in icons["icons"].values()):
            raise ValueError("a drawing is missing in icons.json")
        content.aliases()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"data.root: {folder.parent.name} is not a package of drawings ({first_line(error)})"
        ) from error
    return content


def find_codes(sets: Mapping[str, SetContent]) -> EmojiNames:
    """Finds the drawings of single code points in all sets.

    Left out are sequences (families, professions, keycaps), skin tones, letters of flags, private
    code points, those that no set with codes has, drawings of several codes, and `MISNAMED`.

    Args:
        sets: name of each of `SETS` → its content.
    """
    drawings: dict[str, dict[int, str]] = {one.name: {} for one in SETS}
    names: dict[int, str] = {}
    for one in _identified_by("codes"):
        for code, name in _match_codes(sets[one.name]):
            drawings[one.name][code] = name
            names.setdefault(code, name)
    by_name = _codes_of_names(sets, names)
    for one in _identified_by("names"):
        drawings[one.name] = _match_names(sets[one.name], by_name)
    for one in _identified_by("table"):
        known = sets[one.name].icons["icons"]
        table = read_mozilla_table()
        drawings[one.name] = {code: name for name, code in table.items() if name in known}
    for set_name, found in drawings.items():
        for code, name in list(found.items()):
            if (set_name, name) in MISNAMED:
                del found[code]
    return EmojiNames(drawings, names, _find_groups(sets, drawings))


def _match_codes(content: SetContent) -> Iterator[tuple[int, str]]:
    """Yields code points with their drawings, of a package that lists code points."""
    uses = Counter(content.codes.values())
    for text, name in content.codes.items():
        code = single_code_point(text)
        if code is not None and uses[name] == 1 and name in content.icons["icons"]:
            yield code, name


def single_code_point(text: str) -> int | None:
    """Returns the code point of one emoji without modifiers, None for anything else.

    Args:
        text: hexadecimal code points, joined by `-`; the variation selector FE0F is ignored.
    """
    points = [int(part, 16) for part in text.split("-") if part.lower() != "fe0f"]
    if len(points) != 1:
        return None
    (code,) = points
    skin_tone = 0x1F3FB <= code <= 0x1F3FF
    letter_of_flag = 0x1F1E6 <= code <= 0x1F1FF
    private = 0xE000 <= code <= 0xF8FF or code >= 0xE0000
    character = code > 0x7F and code != 0x20E3  # digits and signs of keycaps, and their frame
    return code if character and not (skin_tone or letter_of_flag or private) else None


def read_mozilla_table() -> dict[str, int]:
    """Returns Mozilla's names of drawings → code points."""
    with open(MOZILLA_TABLE, encoding="utf-8", newline="") as file:
        return {row["name"]: int(row["code"], 16) for row in csv.DictReader(file)}


def _identified_by(kind: str) -> Iterable[EmojiSet]:
    return (one for one in SETS if one.identified_by == kind)


def _codes_of_names(sets: Mapping[str, SetContent], names: Iterable[int]) -> CodesByName:
    """Code points by every name that the sets with code points, or Unicode, give them.

    Names of what is left out are kept with `NO_CODE`, so that they identify nothing else.
    """
    by_name: CodesByName = defaultdict(set)
    for one in _identified_by("codes"):
        codes: dict[str, int] = {}
        for text, name in sets[one.name].codes.items():
            code = single_code_point(text)
            if code is not None or name not in codes:  # some have a private code point as well
                codes[name] = NO_CODE if code is None else code
        named = {**{name: name for name in codes}, **sets[one.name].aliases()}
        for name, drawing in named.items():
            if drawing in codes:
                by_name[_letters(name)].add(codes[drawing])
    for code in names:  # older sets may have the name of Unicode's own list
        by_name.setdefault(_letters(unicodedata.name(chr(code), "")), {code})
    return by_name


def _match_names(content: SetContent, by_name: CodesByName) -> dict[int, str]:
    """Drawings by code point; names that several code points have identify none."""
    found: dict[int, str] = {}
    own = {name: name for name in content.icons["icons"]}
    for name, drawing in (own | content.aliases()).items():
        codes = by_name.get(_letters(name))
        if codes is None:  # Streamline numbers its drawings where it has several
            codes = by_name.get(_letters(name.removesuffix("-1")), {NO_CODE})
        if len(codes) == 1 and codes != {NO_CODE} and drawing in own:
            found.setdefault(min(codes), drawing)
    return found


def _find_groups(
    sets: Mapping[str, SetContent], drawings: Mapping[str, Mapping[int, str]]
) -> dict[int, str]:
    groups: dict[int, str] = {}
    for one in _identified_by("codes"):
        group_of = {name: group for group, names in sets[one.name].groups.items() for name in names}
        for code, name in drawings[one.name].items():
            if name in group_of:
                groups.setdefault(code, group_of[name])
    return groups


def _letters(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())
