"""Tables for papers: LaTeX of a report, its daggers, p-values and departures."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest
from scipy.stats import ttest_ind

from dml.core.installation import CONFIGS
from dml.results.catalog import experiment_ids, load_experiment
from dml.results.departures import find_departures
from dml.results.latex import escape_latex, latex_list, latex_table
from dml.results.published import read_table
from dml.results.report import build_report
from dml.results.report_texts import to_frame, to_latex
from dml.results.tables import Cell, Column, Table
from tests.commands import report as run_report
from tests.results.made_runs import write_run

SCORES = {  # percent × 100, of three seeds
    "mfcwms": [0.30, 0.31, 0.32],
    "ms": [0.20, 0.21, 0.22],
    "mfcont": [0.29, 0.31, 0.30],
}


@pytest.fixture
def losses(composed, tmp_path):
    """Three losses on digits, of which `ms` is far below the others."""
    for loss, values in SCORES.items():
        for seed, value in enumerate(values):
            write_run(tmp_path, composed(f"loss={loss}", f"seed={seed}"), [[value]])
    return build_report(load_experiment("single"), (), tmp_path)


def rows_of(latex):
    """Method → cells of the only table."""
    (body,) = re.findall(r"\\midrule\n(.*?)\\bottomrule", latex, re.DOTALL)
    rows = {}
    for line in body.strip().split("\n"):
        name, *cells = line.removesuffix(r" \\").split(" & ")
        rows[name] = cells
    return rows


def test_what_is_significantly_below_the_highest_has_a_dagger(losses):
    latex = to_latex([losses])
    rows = rows_of(latex)
    # half-width 4.302653 × 1 / sqrt(3) of values that are 1 apart
    assert rows["mfcwms"][0] == r"\textbf{31.00 $\pm$ 2.48}"
    assert rows["ms"][0] == r"21.00 $\pm$ 2.48$^\dagger$"
    assert rows["mfcont"][0] == r"30.00 $\pm$ 2.48"
    assert latex.count(r"$^\dagger$: MAP@R significantly below the highest") == 1
    assert "better than" not in latex


def test_without_a_difference_no_dagger_is_explained(composed, tmp_path):
    for loss in ("ms", "mfcwms"):
        for seed in range(3):
            write_run(tmp_path, composed(f"loss={loss}", f"seed={seed}"), [[0.2 + seed / 100]])
    assert "dagger" not in to_latex([build_report(load_experiment("single"), (), tmp_path)])


def test_p_values_of_the_table_are_those_of_scipy(losses):
    frame = to_frame([losses]).query("metric == 'map_at_r'").set_index("method")
    expected = {}
    for other in ("ms", "mfcont"):
        first, second = SCORES["mfcwms"], SCORES[other]
        expected[other] = ttest_ind(first, second, equal_var=False).pvalue
    p_values = json.loads(frame.p_values["mf_cwms"])
    assert p_values == pytest.approx(expected)
    # Holm: the smaller of three p-values counts three times; mfcont against mfcwms is the largest
    corrected = json.loads(frame.corrected_p_values["mf_cwms"])
    assert corrected["ms"] == pytest.approx(3 * expected["ms"], rel=0.5)
    assert corrected["mfcont"] == pytest.approx(expected["mfcont"])
    other_metrics = to_frame([losses]).query("metric != 'map_at_r'")
    assert (
        other_metrics.empty
        or "p_values" not in other_metrics
        or other_metrics.p_values.isna().all()
    )


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("proxy_anchor", r"proxy\_anchor"),
        ("5 % & $3 #1 {x}", r"5 \% \& \$3 \#1 \{x\}"),
        ("a\\b~c", r"a\textbackslash{}b\textasciitilde{}c"),
        ("c^d<e>", r"c\textasciicircum{}d\textless{}e\textgreater{}"),
        ("α = 0.1, Δ, λ", r"$\alpha$ = 0.1, $\Delta$, $\lambda$"),
        ("46.3 ± 0.6", r"46.3 $\pm$ 0.6"),
        ("--lr-ratio", "-{}-lr-ratio"),
        ("Müller", "Müller"),
        ("two\nlines", r"two\textbackslash{}nlines"),
    ],
)  # fmt: skip
def test_reserved_characters_and_symbols(text, latex):
    assert escape_latex(text) == latex


def test_rows_below_have_a_rule_of_their_own():
    columns = [
        Column("method", ["a", "b", "untrained"]),
        Column("P@1", ["1", Cell("2", "best"), "0"], right=True),
    ]
    lines = latex_table(Table("T", columns, "c", below=1), "tab:x").split("\n")
    start = lines.index(r"\midrule")
    assert lines[start : start + 6] == [
        r"\midrule", r"a & 1 \\", r"b & \textbf{2} \\", r"\midrule", r"untrained & 0 \\",
        r"\bottomrule",
    ]  # fmt: skip
    assert r"\begin{tabular}{lr}" in lines


def test_code_of_a_list_is_set_as_code():
    assert r"\item here: \texttt{a.b\_c=1}" in latex_list("D:", ["here: `a.b_c=1`"])


def options_of(**names):
    return {f"{group}.name": name for group, name in names.items()}


def items(*rows, experiment="mft_table2"):
    return [found.item for found in find_departures(rows, load_experiment(experiment))]


def test_departures_are_those_of_the_rows():
    cub = options_of(protocol="traditional", data="cub", loss="mfcwms", method="plain")
    sop = {**cub, "data.name": "sop"}
    assert "MFCWMS, Eq. 10: δ" in items(cub)
    assert "MFCont, Eq. 8" not in items(cub)
    assert "BatchNorm (CUB, Cars)" in items(cub)
    assert "BatchNorm (CUB, Cars)" not in items(sop)
    assert "learning rate on SOP and In-Shop" in items(sop)
    assert "learning rate on SOP and In-Shop" not in items(cub)
    assert "learning rate of Proxy Anchor's proxies on SOP and In-Shop" not in items(sop)
    anchors = {**sop, "loss.name": "proxy_anchor"}
    assert "learning rate of Proxy Anchor's proxies on SOP and In-Shop" in items(cub, anchors)
    # those of another paper (here of ccp) only where that is reproduced, or no paper is
    assert "first proxies of baselines" not in items(cub, anchors)
    assert "first proxies of baselines" in items(cub, anchors, experiment="single")


def test_every_departure_applies_to_something_that_exists():
    groups = ("protocol", "data", "backbone", "loss", "method")
    known = {group: {path.stem for path in (CONFIGS / group).glob("*.yaml")} for group in groups}
    for row in read_table("departures.csv"):
        for word in row["applies_to"].split():
            group, _, names = word.partition("=")
            assert set(names.split(",")) <= known[group], row["item"]
        for file in row["config"].split():
            group, _, name = file.partition("/")
            if group == "experiment":
                assert name in experiment_ids()


def test_the_command_writes_the_file_and_replaces_only_its_own(losses, tmp_path, capsys):
    words = ["single", "--runs", str(tmp_path), "--no-figures", "--latex"]
    written = tmp_path / "reports" / "single.tex"
    for _ in range(2):
        assert run_report(words) == 0
    assert capsys.readouterr().out.count(f"written  {written}") == 2
    assert rows_of(written.read_text())["ms"][0].startswith("21.00")
    written.write_text("my thesis")
    assert run_report(words) == 1
    assert f"--out: {written} exists" in capsys.readouterr().err
    assert written.read_text() == "my thesis"


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles(report, losses, tmp_path):
    (tmp_path / "tables.tex").write_text(to_latex([report, losses]))
    (tmp_path / "paper.tex").write_text(
        r"\documentclass{article}\usepackage{booktabs}\usepackage[T1]{fontenc}"
        r"\begin{document}\input{tables.tex}\end{document}"
    )
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-2000:]
