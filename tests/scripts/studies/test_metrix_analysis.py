"""Analyses of Metrix on finished runs."""

import csv
import math

import pytest

from dml.core.errors import UserError
from scripts.studies.metrix_analysis import analyze_metrix


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.pictures
def test_analyzes_a_finished_run(run_tiny):
    _, folder = run_tiny(
        "loss=ms", "method=metrix", "data.batch_size=40", "protocol.steps_per_epoch=4"
    )
    measures = analyze_metrix(folder)
    assert measures["utilization_mixed"] <= measures["utilization"]
    assert measures["uniformity"] < 0 < measures["alignment"]
    written = {
        row["measure"]: float(row["value"]) for row in rows(folder / "analysis/measures.csv")
    }
    assert written == pytest.approx(measures, rel=1e-5)
    curve = rows(folder / "analysis/positivity.csv")
    assert len(curve) == 20
    assert any(not math.isnan(float(row["measured"])) for row in curve)
    assert any(not math.isnan(float(row["predicted"])) for row in curve)
    assert (folder / "analysis/positivity.png").exists()


def test_analyzes_a_run_of_another_loss(run_tiny, tmp_path):
    _, folder = run_tiny("loss=proxy_anchor", "protocol.epochs=1")
    assert set(analyze_metrix(folder)) == {"alignment", "uniformity", "utilization"}
    assert not (folder / "analysis/positivity.csv").exists()
    with pytest.raises(UserError, match="is not a run folder"):
        analyze_metrix(tmp_path)
