"""Numbers of things in sentences: `1 image is`, `2 images are`."""

from __future__ import annotations


def count_of(number: int, noun: str, plural: str = "") -> str:
    """Returns a number with its noun, in the plural unless the number is 1: `1 run`, `2 runs`.

    Args:
        number: of things, ≥ 0; from 1,000 on with commas.
        noun: in the singular; of more than one word the last is inflected.
        plural: of the noun; empty: the noun with -s, or with -es after an s.
    """
    if number == 1:
        return f"1 {noun}"
    ending = "es" if noun.endswith("s") else "s"
    return f"{number:,} {plural or noun + ending}"


def verb_for(number: int, singular: str, plural: str) -> str:
    """Returns the form of a verb that agrees with a number: `is` of `verb_for(1, "is", "are")`."""
    return singular if number == 1 else plural
