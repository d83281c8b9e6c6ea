"""Hooks of the site's build: documents outside `docs/`, and equations as MathML.

`mkdocs.yml` names this file. MathML needs neither scripts nor fonts from a server.
"""

from __future__ import annotations

import html
import posixpath
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from markdown import Extension, Markdown
from markdown.inlinepatterns import SimpleTextInlineProcessor
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
# Documents at the root of the repository, and their pages on the site.
OUTSIDE = {
    "BENCHMARKS.md": "benchmarks.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_EQUATION = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.S)


class _NoUnderscores(Extension):
    """Makes underscores plain text: `F_i` and `[x]_+` in the equations of docstrings."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 - name of the library
        pattern = SimpleTextInlineProcessor("(_+)")
        md.inlinePatterns.register(pattern, "underscore", 65)  # after code and links


def on_config(config: Any) -> Any:
    """Adds the extension above, for pages and docstrings."""
    config.markdown_extensions.append(_NoUnderscores())
    return config


def on_files(files: Any, config: Any) -> Any:
    """Adds the documents at the root of the repository."""
    for name, page in OUTSIDE.items():
        if (ROOT / name).exists():
            files.append(File.generated(config, page, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrites links: on GitHub they lead from file to file, here from page to page."""
    outside = {site: source for source, site in OUTSIDE.items()}
    source = outside.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def rewrite(link: re.Match[str]) -> str:
        picture, text, target, anchor = link.groups(default="")
        if "://" in target or target.startswith("mailto:"):
            return link[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        place = OUTSIDE.get(path) or (
            "index.md" if path == "README.md" else path.removeprefix("docs/")
        )
        if not path.startswith("docs/") and place == path:
            return text  # a file of the repository without a page
        here = posixpath.dirname(page.file.src_uri) or "."
        return f"{picture}[{text}]({posixpath.relpath(place, here)}{anchor})"

    return _LINK.sub(rewrite, markdown)


def on_page_content(content: str, **_: Any) -> str:
    """Converts the equations of a page to MathML."""

    def write(equation: re.Match[str]) -> str:
        display = "block" if equation[1] == "div" else "inline"
        mathml = convert(html.unescape(equation[2]).strip(), display=display)
        return f'<{equation[1]} class="arithmatex">{mathml}</{equation[1]}>'

    return _EQUATION.sub(write, content)
