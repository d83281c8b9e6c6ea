"""The comparison with the authors' code: its table, and what is said without their code."""

import re
from pathlib import Path

import numpy as np
import yaml

from scripts import check_fidelity
from scripts.fidelity import table as fidelity

ROOT = Path(__file__).parents[2]
COMPARISONS = yaml.safe_load((ROOT / "scripts/fidelity/comparisons.yaml").read_text())


def test_differences_are_relative_to_the_largest_entry_and_mirrored_arrays_are_equal():
    theirs = {"row/a": np.array([[1.0, 2.0, -4.0]]), "other/a": np.ones(2)}
    compare = fidelity.largest_difference
    assert compare("row", {"row/a": theirs["row/a"].T}, theirs) == 0
    assert compare("row", {"row/a": np.array([[1.0, 2.5, -4.0]])}, theirs) == 0.125
    assert compare("row", {"row/a": np.full((1, 3), np.nan)}, theirs) == np.inf
    assert compare("row", {"row/a": np.ones(2)}, theirs) == np.inf
    assert compare("missing", {}, theirs) == np.inf


def test_a_folder_without_clones_leaves_the_page_alone(tmp_path, monkeypatch, capsys):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- comparisons -->\nthe table\n<!-- end of comparisons -->\nafter\n")
    before = page.read_bytes()
    monkeypatch.setattr(fidelity, "PAGE", page)
    assert check_fidelity.main([str(tmp_path)]) == 1
    assert page.read_bytes() == before
    said = capsys.readouterr().out
    assert f"error: {tmp_path} has no clone" in said
    for one in COMPARISONS:
        assert f"git -C {tmp_path / Path(one['name']).name} checkout {one['revision']}" in said


def test_repositories_that_are_not_there_are_rows_that_say_so(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text(
        "before\n<!-- comparisons -->\nthe former table\n<!-- end of comparisons -->\nafter\n"
    )
    first = COMPARISONS[0]
    clone = tmp_path / Path(first["name"]).name

    def revision_of_the_clone(folder, *words):
        return first["revision"] if folder == clone else ""

    monkeypatch.setattr(fidelity, "PAGE", page)
    monkeypatch.setattr(fidelity, "git", revision_of_the_clone)
    monkeypatch.setattr(fidelity, "compare", lambda *more: ({}, {}))
    monkeypatch.setattr(fidelity, "largest_difference", lambda *more: 0.0)
    for key in ("python", "packages"):
        (tmp_path / first.get(key, "")).mkdir(parents=True, exist_ok=True)
    assert check_fidelity.main([str(tmp_path)]) == 0
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "former" not in text
    for one in COMPARISONS:
        assert text.count(f"{one['name']} {one['revision'][:7]}") == len(one["rows"])
    assert text.count("| not run |") == sum(len(one["rows"]) for one in COMPARISONS[1:])


def test_every_row_of_the_table_was_run_and_is_within_its_tolerance():
    table = (ROOT / "docs/fidelity.md").read_text().split("<!-- end of comparisons -->")[0]
    rows = re.findall(r"^\| (\S+ \S{7}) \| .* \| (\S+) \| (\S+) \|$", table, flags=re.MULTILINE)
    expected = [f"{one['name']} {one['revision'][:7]}" for one in COMPARISONS for _ in one["rows"]]
    assert [name for name, *_ in rows] == expected
    assert all(float(difference) <= float(allowed) for _, difference, allowed in rows)
