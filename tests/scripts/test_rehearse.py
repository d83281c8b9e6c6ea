"""Rehearsals: what they run, and what they report."""

from dml.core.errors import UserError
from dml.results.catalog import list_cells
from scripts import rehearse as command
from scripts.docs import rehearsal
from scripts.docs.rehearsal import rehearse, select_cells

SMALL = (
    *("data=digits", "device=cpu", "backbone.width=4", "data.eval_batch_size=1000"),
    *("protocol.epochs=1", "protocol.steps_per_epoch=2", "protocol.repeats=1"),
)


def test_a_cell_of_each_method_is_run_and_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(rehearsal, "STAND_IN", ("scale=standin", *SMALL))
    found = rehearse("metrix_figure4", tmp_path)
    cells = list_cells("metrix_figure4", ["scale=standin", *SMALL, f"outputs={tmp_path}"])
    methods = {cell.options.method.name for cell in cells}
    numbers = {"cells": len(cells), "runs": len(methods), "problems": []}
    assert numbers.items() <= found.items()
    assert {cell.options.method.name for cell in select_cells(cells)} == methods
    assert (tmp_path / "reports" / "metrix_figure4.html").exists()


def test_what_fails_is_reported_in_a_line(tmp_path, monkeypatch):
    def fail(config):
        raise UserError("first line\nsecond line")

    monkeypatch.setattr(rehearsal, "STAND_IN", ("scale=standin", *SMALL))
    monkeypatch.setattr(rehearsal, "run", fail)
    found = rehearse("metrix_figure4", tmp_path)
    assert found["runs"] == 0
    assert all(line.endswith(": first line") for line in found["problems"])
    assert len(found["problems"]) == 2


def test_experiments_are_checked_before_the_first_trains(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(rehearsal, "rehearse", None)  # a call would raise
    assert command.main(["mft_table2", "mft_tabl3", "nope", f"--outputs={tmp_path}"]) == 2
    err = capsys.readouterr().err
    assert "no 'mft_tabl3'; did you mean 'mft_table" in err
    assert "no 'nope'" in err
