"""Verdicts in tables written by hand are those of the generated pages."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "results"
VERDICT = r"holds|does not hold|undecided"
SUMMARY = re.compile(rf"\| ({VERDICT})(?::| \() ?\(?([+−]\d+\.\d) ± (\d+\.\d)")


def verdicts_of_pages() -> list[tuple[str, float, float]]:
    """Every verdict on MAP@R, with its difference and half-width."""
    found = []
    for page in RESULTS.glob("claims_*.md"):
        text = page.read_text(encoding="utf-8")
        rows = re.findall(rf"\| MAP@R \| (\S+) ± (\S+) \| [^|]* \| ({VERDICT}) \|", text)
        assert rows, page.name
        found += [(verdict, float(difference), float(half)) for difference, half, verdict in rows]
    return found


@pytest.mark.parametrize("page", [ROOT / "README.md", RESULTS / "README.md"], ids=str)
def test_verdicts_are_those_of_the_pages(page):
    """To one digit: of 2.449, pages say 2.45 and summaries 2.4."""
    stated = SUMMARY.findall(page.read_text(encoding="utf-8"))
    assert len(stated) >= 5
    for verdict, difference, half in stated:
        numbers = float(difference.replace("−", "-")), float(half)
        assert any(
            verdict == other and numbers == pytest.approx(found, abs=0.0551)
            for other, *found in verdicts_of_pages()
        ), (verdict, difference, half)


def test_the_program_that_recomputes_a_verdict(capsys, monkeypatch):
    """Its last comment is what it prints, and what the page says."""
    monkeypatch.chdir(ROOT)
    (code,) = re.findall(r"```python\n(.*?)```", (RESULTS / "README.md").read_text("utf-8"), re.S)
    exec(compile(code, "docs/results/README.md", "exec"), {})
    printed = capsys.readouterr().out.strip()
    assert code.strip().endswith(f"# {printed}")
    assert printed in (RESULTS / "claims_mean_field.md").read_text(encoding="utf-8")
