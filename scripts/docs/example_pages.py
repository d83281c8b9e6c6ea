"""Pages of examples: Python blocks, each followed by what it prints when the page is made."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

from scripts.docs.markdown import NOTE

EXAMPLES = Path(__file__).with_name("texts") / "examples"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)


def make_example_pages() -> dict[str, str]:
    """Returns the text of every page of examples by its path below `docs/`."""
    pages = {}
    for path in sorted(EXAMPLES.glob("*.md")):
        title, _, rest = path.read_text(encoding="utf-8").partition("\n")
        pages[f"examples/{path.name}"] = f"{title}\n\n{NOTE}\n{run_blocks(rest)}"
    return pages


def run_blocks(text: str) -> str:
    """Returns Markdown in which every Python block is followed by a block of what it prints.

    The blocks share their variables, as the cells of a notebook do.
    """
    variables: dict[str, Any] = {}

    def run(block: re.Match[str]) -> str:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(block[1], variables)
        output = printed.getvalue().rstrip()
        return f"{block[0]}\n\n```text\n{output}\n```" if output else block[0]

    return _BLOCK.sub(run, text)
