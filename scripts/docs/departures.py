"""Where a paper, its authors' code and this framework differ: dml/results/papers/departures.csv."""

from __future__ import annotations

from dml.core.installation import CONFIGS
from dml.results.published import read_table
from scripts.docs.markdown import code, escape, replace_section, table

COLUMNS = ("paper", "item", "printed", "code", "ours")
HEAD = ("paper", "item", "printed", "authors' code", "here", "files in `configs/`")


def tabulate_departures(config: str = "") -> str:
    """Returns the table of the config files that begin with a text: `loss/ms `, `protocol/`."""
    rows = []
    for row in read_table("departures.csv"):
        if f" {config}" in f" {row['config']} ":
            cells = [escape(row[name]) for name in COLUMNS]
            files = map(code, row["config"].split())
            rows.append([*cells, " ".join(files)])
    return table(HEAD, rows)


def make_fidelity_page() -> dict[str, str]:
    """Returns the page with its table of departures, by its path below `docs/`."""
    text = (CONFIGS.parent / "docs/fidelity.md").read_text(encoding="utf-8")
    return {"fidelity.md": replace_section(text, "departures", tabulate_departures())}
