"""The folder from which a site is built: plain Markdown and a navigation, for any builder.

`build/pages` has the pages of `docs/`, its notebooks, and documents at the root of the repository,
with links from page to page, equations in MathML, and the docstrings of the Python reference.
`build/nav.yml` has the navigation and the address of the repository, which `mkdocs.yml` inherits.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import shutil
import subprocess
from pathlib import Path, PurePosixPath
from typing import Any

import yaml  # type: ignore[import-untyped]

from dml.core.errors import UserError
from scripts.docs.equations import draw_equations
from scripts.docs.python_reference import describe

# Documents at the root of the repository, and their pages on the site.
OUTSIDE = {
    "BENCHMARKS.md": "benchmarks.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
NOTEBOOK = ".ipynb"
NAVIGATION = ".nav.yml"  # in docs/
# Names of the repository by ssh or https, of which the page in a browser follows.
_REMOTE = re.compile(r"(?:https://|ssh://git@|git@)(?:[^@/]+@)?([\w.-]+)[:/](.+?)(?:\.git)?/?$")
# A fenced block, which has no links, or a link.
_FENCE_OR_LINK = re.compile(
    r"^```.*?^```$|(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s#]+)(#[^)\s]*)?\)", re.M | re.S
)
_ENTRY = re.compile(r"^::: (\S+)\n((?:    .*\n)*)", re.M)


def write_site(root: Path, build: Path) -> None:
    """Writes the pages into `build/pages`, in place of those there, and `build/nav.yml`.

    Raises:
        UserError: a page is in no section of the navigation.
    """
    sources = _list_pages(root)
    navigation = make_navigation(root / "docs" / NAVIGATION, sorted(sources))
    target = build / "pages"
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(root / "docs", target, ignore=shutil.ignore_patterns("*.md", ".*"))
    for page, source in sources.items():
        text = (root / source).read_text(encoding="utf-8")
        if source.endswith(NOTEBOOK):
            text = make_notebook_page(text, posixpath.basename(source))
        path = target / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(make_page(text, source), encoding="utf-8")
    settings: dict[str, Any] = {"nav": navigation}
    address = find_repository(root)
    if address:
        settings["repo_url"] = address
        settings["repo_name"] = posixpath.basename(address)
    text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
    (build / "nav.yml").write_text(text, encoding="utf-8")


def find_repository(root: Path) -> str:
    """Returns the web page of the repository; empty if it is not known.

    It is that of a workflow of GitHub, or else that of the clone's remote `origin`.
    """
    server, name = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
    if server and name:
        return f"{server}/{name}"
    command = ["git", "-C", str(root), "remote", "get-url", "origin"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:  # without git
        return ""
    return web_address(found.stdout.strip())


def web_address(remote: str) -> str:
    """Returns the web page of a remote such as `git@host:owner/name.git`; empty for a folder."""
    parts = _REMOTE.match(remote)
    return f"https://{parts[1]}/{parts[2]}" if parts else ""


def make_notebook_page(notebook: str, name: str) -> str:
    """Returns the Markdown of a notebook, without outputs; a link to its file follows the title.

    Args:
        notebook: its JSON.
        name: of its file.
    """
    parts = []
    for cell in json.loads(notebook)["cells"]:
        text = "".join(cell["source"]).strip()
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    title, _, rest = "\n\n".join(parts).partition("\n")
    return f'{title}\n\n<a href="{name}" download>Download this notebook</a>\n{rest}\n'


def _list_pages(root: Path) -> dict[str, str]:
    """Returns the source of each page, by the path of the page on the site."""
    sources = [path.relative_to(root).as_posix() for path in (root / "docs").rglob("*.md")]
    sources += [path.relative_to(root).as_posix() for path in (root / "docs").rglob("*.ipynb")]
    sources += [name for name in OUTSIDE if (root / name).exists()]
    return {_find_page(source): source for source in sorted(sources)}


def _find_page(source: str) -> str:
    """Returns the path on the site of a file of the repository; of one without a page, its own.

    `README.md` of a folder below `docs/` is the index of the folder, and a notebook becomes a page.
    """
    if source in OUTSIDE:
        return OUTSIDE[source]
    if source == "README.md":  # the site's front page is docs/index.md
        return "index.md"
    if not source.startswith("docs/"):
        return source
    page = source.removeprefix("docs/")
    if page.endswith(NOTEBOOK):
        return page.removesuffix(NOTEBOOK) + ".md"
    return re.sub(r"(^|/)README\.md$", r"\1index.md", page)


def make_page(text: str, source: str) -> str:
    """Returns a page of the site.

    Args:
        text: of the document, as it is in the repository.
        source: path of the document in the repository.
    """
    page = _ENTRY.sub(_describe_entry, text)
    return draw_equations(rewrite_links(page, source))


def _describe_entry(entry: re.Match[str]) -> str:
    name, options = entry.groups()
    return describe(name, with_members="members: false" not in options) + "\n"


def rewrite_links(text: str, source: str) -> str:
    """Returns Markdown with links from page to page: on GitHub they lead from file to file.

    A link to a file of the repository that has no page becomes its text.

    Args:
        text: of the document.
        source: path of the document in the repository.
    """
    here = posixpath.dirname(_find_page(source)) or "."

    def rewrite(link: re.Match[str]) -> str:
        picture, label, target, anchor = link.groups(default="")
        if not target or "://" in target or target.startswith("mailto:"):
            return link[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        page = _find_page(path)
        if page == path:
            return label
        if path == "README.md":  # its sections are not those of the front page
            anchor = ""
        return f"{picture}[{label}]({posixpath.relpath(page, here)}{anchor})"

    return _FENCE_OR_LINK.sub(rewrite, text)


def make_navigation(file: Path, pages: list[str]) -> list[Any]:
    """Returns the navigation with the paths of pages in place of patterns.

    A pattern such as `losses/*.md` stands for the pages that match it and that are named nowhere
    else, in alphabetical order. A section without a page is left out.

    Args:
        file: with sections, whose entries are pages, patterns and further sections.
        pages: paths of all pages.

    Raises:
        UserError: a page is in no section, or a page that is named does not exist.
    """
    sections = yaml.safe_load(file.read_text(encoding="utf-8"))["nav"]
    named = _list_names(sections)
    missing = [name for name in named if "*" not in name and name not in pages]
    if missing:
        raise UserError(f"{file}: {missing[0]} does not exist; correct or remove its line")
    remaining = [page for page in pages if page not in named]
    navigation = _expand(sections, remaining)
    if remaining:
        raise UserError(f"{file}: no section has {remaining[0]}; add a line for it")
    return navigation


def _list_names(sections: list[Any]) -> list[str]:
    """Returns every page and pattern of the navigation."""
    names = []
    for entry in sections:
        if isinstance(entry, str):
            names.append(entry)
            continue
        for content in entry.values():
            names += _list_names([content] if isinstance(content, str) else content)
    return names


def _expand(sections: list[Any], remaining: list[str]) -> list[Any]:
    """Returns sections without patterns, and removes the pages that they took from `remaining`."""
    expanded: list[Any] = []
    for entry in sections:
        if isinstance(entry, dict):
            ((title, content),) = entry.items()
            if isinstance(content, list):
                content = _expand(content, remaining)
            if content:  # the pages of its patterns may all stand elsewhere
                expanded.append({title: content})
        elif "*" in entry:
            for page in [page for page in remaining if PurePosixPath(page).match(entry)]:
                expanded.append(page)
                remaining.remove(page)
        else:
            expanded.append(entry)
    return expanded
