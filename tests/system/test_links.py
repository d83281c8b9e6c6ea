"""Links in the documents lead to files and headings that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "data", "outputs", ".github")
PAGES = sorted(
    [*ROOT.glob("*.md"), *(path for one in FOLDERS for path in (ROOT / one).rglob("*.md"))]
)


def read_text(path: Path) -> str:
    """Returns a page without its blocks and pieces of code."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.S | re.M)
    return re.sub(r"`[^`\n]*`", "code", text)


def list_anchors(path: Path) -> set[str]:
    """Returns the anchors that GitHub gives the headings of a page, and those of its HTML."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.S | re.M)
    anchors = set(re.findall(r'<a (?:id|name)="([^"]+)"', text))
    for heading in re.findall(r"^#+ +(.+?) *#*$", text, re.M):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        number = next(n for n in range(99) if (f"{name}-{n}" if n else name) not in anchors)
        anchors.add(f"{name}-{number}" if number else name)
    return anchors


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_resolve(page):
    text = read_text(page)
    links = re.findall(r"\]\(\s*<?([^)\s>]+)", text) + re.findall(r'(?:src|href)="([^"]+)"', text)
    broken = []
    for link in links:
        place, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", place):
            continue
        target = (page.parent / place).resolve() if place else page
        if not target.exists() or not target.is_relative_to(ROOT):
            broken.append(link)
        elif anchor and target.suffix == ".md" and anchor not in list_anchors(target):
            broken.append(f"{link} (no such heading)")
    assert broken == []
