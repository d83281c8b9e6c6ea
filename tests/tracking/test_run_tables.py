import csv

import pytest

from dml.core.errors import UserError
from dml.tracking import RunTables


def steps(table):
    with open(table.path, newline="") as file:
        return [row["step"] for row in csv.DictReader(file)]


def row(repeat, step):
    return {"repeat": repeat, "fold": 0, "epoch": step / 2, "step": step}


def test_times_follow_the_checkpoint_that_a_run_goes_back_to(tmp_path):
    tables = RunTables.open(tmp_path)
    for step in (0, 7, 14):
        tables.history.append(row(0, step))
        if step:
            tables.throughput.append(row(0, step))
    tables.throughput.append(row(1, 21))
    again = RunTables.open(tmp_path)
    again.rewind((0, 0), rows=2, step=10)  # it was stopped between two evaluations
    assert steps(again.history) == ["0", "7"]
    assert steps(again.throughput) == ["7", "21"]
    RunTables.null().rewind((0, 0), rows=2, step=10)
    again.throughput.path.write_bytes(bytes(range(256)))
    with pytest.raises(UserError, match=r"throughput\.csv is damaged .*; delete it"):
        RunTables.open(tmp_path)
