"""Every generated page of the documentation: writing them, and finding those out of date."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from scripts.docs.departures import make_fidelity_page
from scripts.docs.example_pages import make_example_pages
from scripts.docs.experiment_page import make_experiment_page
from scripts.docs.loss_pages import make_loss_pages
from scripts.docs.markdown import NOTE
from scripts.docs.method_pages import make_method_pages
from scripts.docs.option_pages import make_option_pages
from scripts.docs.protocol_page import make_protocol_page
from scripts.docs.python_pages import make_python_pages
from scripts.docs.study_results import make_leaderboard


@cache
def make_pages() -> dict[str, str]:
    """Returns the text of every generated page by its path below `docs/`."""
    return {
        **make_loss_pages(),
        **make_method_pages(),
        **make_experiment_page(),
        **make_option_pages(),
        **make_protocol_page(),
        **make_fidelity_page(),
        **make_python_pages(),
        **make_leaderboard(),
        **make_example_pages(),
    }


def find_outdated(folder: Path) -> list[str]:
    """Returns the generated pages that are missing, changed or no longer made, sorted.

    Args:
        folder: with the pages, `docs/`.
    """
    pages = make_pages()
    stored = {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8")
        for path in folder.rglob("*.md")
    }
    generated = {name for name, text in stored.items() if NOTE in text}
    return sorted(name for name in generated | set(pages) if stored.get(name) != pages.get(name))


def write_pages(folder: Path) -> list[str]:
    """Writes the pages that are out of date, deletes those no longer made, and returns both."""
    pages = make_pages()
    outdated = find_outdated(folder)
    for name in outdated:
        path = folder / name
        if name not in pages:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(pages[name], encoding="utf-8")
    return outdated
