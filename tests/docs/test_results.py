"""Verdicts in tables written by hand are those of the generated pages."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "results"
VERDICT = r"holds|does not hold|undecided"
SUMMARY = re.compile(rf"\| ({VERDICT})(?::| \() ?\(?([+−]\d+\.\d) ± (\d+\.\d)")


def verdicts_of_pages() -> set[tuple[str, str, str]]:
    """Every verdict on MAP@R, with its difference and half-width to one digit."""
    found = set()
    for page in RESULTS.glob("claims_*.md"):
        text = page.read_text(encoding="utf-8")
        rows = re.findall(rf"\| MAP@R \| (\S+) ± (\S+) \| [^|]* \| ({VERDICT}) \|", text)
        assert rows, page.name
        for difference, half, verdict in rows:
            signed = f"{float(difference):+.1f}".replace("-", "−")
            found.add((verdict, signed, f"{float(half):.1f}"))
    return found


@pytest.mark.parametrize("page", [ROOT / "README.md", RESULTS / "README.md"], ids=str)
def test_verdicts_are_those_of_the_pages(page):
    stated = SUMMARY.findall(page.read_text(encoding="utf-8"))
    assert len(stated) >= 5
    assert set(stated) <= verdicts_of_pages()


def test_the_program_that_recomputes_a_verdict(capsys, monkeypatch):
    """Its last comment is what it prints, and what the page says."""
    monkeypatch.chdir(ROOT)
    (code,) = re.findall(r"```python\n(.*?)```", (RESULTS / "README.md").read_text("utf-8"), re.S)
    exec(compile(code, "docs/results/README.md", "exec"), {})
    printed = capsys.readouterr().out.strip()
    assert code.strip().endswith(f"# {printed}")
    assert printed in (RESULTS / "claims_mean_field.md").read_text(encoding="utf-8")
