"""Titles, equations, papers and advice of the losses and methods, from `texts/`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

_TEXTS = Path(__file__).parent / "texts"


@dataclass(frozen=True)
class Paper:
    """A publication.

    Attributes:
        title, authors, venue: as printed; the venue with its year.
        link: address of its page.
    """

    title: str
    authors: str
    venue: str
    link: str


@dataclass(frozen=True)
class Description:
    """Description of a loss or a method that neither its config nor its docstring holds.

    Attributes:
        title: name in headings.
        papers: sources, the most important one first.
        text: two sentences about it.
        cost: time and memory of a step, in words.
        note: what to know of it, or what its paper reports; one sentence.
        equation: LaTeX, or empty; an empty line separates equations.
        symbols: symbols of the equation that are not common to all pages.
        losses: of a method: the losses that it takes, in Markdown.
    """

    title: str
    papers: tuple[Paper, ...]
    text: str
    cost: str
    note: str
    equation: str = ""
    symbols: str = ""
    losses: str = ""

    @property
    def equations(self) -> list[str]:
        """The equations one by one."""
        return [one.strip() for one in self.equation.split("\n\n") if one.strip()]


def load_papers() -> dict[str, Paper]:
    """Returns all papers by their keys in `texts/papers.yaml`."""
    return {key: Paper(**paper) for key, paper in load_texts("papers").items()}


def load_descriptions(kind: str) -> dict[str, Description]:
    """Returns the descriptions of all `losses` or `methods` by their names in commands."""
    papers = load_papers()
    descriptions = {}
    for name, entry in load_texts(kind).items():
        sources = tuple(papers[key] for key in entry["papers"])
        descriptions[name] = Description(**(entry | {"papers": sources}))
    return descriptions


@cache
def load_texts(name: str) -> dict[str, Any]:
    """Returns the content of a file of `texts/`."""
    content: dict[str, Any] = yaml.safe_load((_TEXTS / f"{name}.yaml").read_text("utf-8"))
    return content
