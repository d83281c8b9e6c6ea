"""Links in the documents lead to files and headings that exist."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "data", "outputs", ".github")
PAGES = sorted(
    [*ROOT.glob("*.md"), *(path for one in FOLDERS for path in (ROOT / one).rglob("*.md"))]
)


def read_text(path: Path) -> str:
    """Returns a page without its blocks and pieces of code."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.S | re.M)
    return re.sub(r"`[^`\n]*`", "code", text)


@cache
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


def find_broken_links(page: Path) -> Iterator[str]:
    """Yields the links of a page that lead nowhere."""
    text = read_text(page)
    links = re.findall(r"\]\(\s*<?([^)\s>]+)", text) + re.findall(r'(?:src|href)="([^"]+)"', text)
    for link in links:
        place, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", place):
            continue
        target = (page.parent / place).resolve() if place else page
        if not target.exists() or not target.is_relative_to(ROOT):
            yield link
        elif anchor and target.suffix == ".md" and anchor not in list_anchors(target):
            yield f"{link} (no such heading)"


def test_links_resolve():
    broken = {str(page.relative_to(ROOT)): [*find_broken_links(page)] for page in PAGES}
    assert len(broken) > 50
    assert {page: links for page, links in broken.items() if links} == {}
