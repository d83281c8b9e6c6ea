from dml.tracking import History
from tests.runs.small_runs import rows


def row(repeat, step, **more):
    return {"repeat": repeat, "fold": 0, "epoch": step / 2, "step": step, **more}


def test_rows_and_late_columns(tmp_path):
    history = History(tmp_path / "history.csv")
    history.append(row(0, 0, map_at_r=0.5))
    history.append(row(0, 1, map_at_r=1 / 3, loss=2.0))
    history.append(row(0, 2, map_at_r=0.25, loss=1.0))
    found = rows(tmp_path)
    assert [r["loss"] for r in found] == ["", "2.0", "1.0"]
    assert float(found[1]["map_at_r"]) == 1 / 3  # every digit is there
    assert list(found[0])[:4] == ["repeat", "fold", "epoch", "step"]
    assert History(history.path).job_rows(0, 0) == history.job_rows(0, 0)


def test_rewind_keeps_other_jobs(tmp_path):
    history = History(tmp_path / "history.csv")
    for repeat in (0, 1):
        for step in range(3):
            history.append(row(repeat, step, x=step))
    history.rewind((1, 0), 1)
    assert [r["repeat"] + r["step"] for r in rows(tmp_path)] == ["00", "01", "02", "10"]
    history.append(row(1, 1, x=9))
    assert rows(tmp_path)[-1]["x"] == "9"


def test_rows_of_a_job_replace_those_before_and_others_stay(tmp_path):
    history, other = (History(tmp_path / name / "history.csv") for name in "ab")
    for repeat in (0, 1):
        history.append(row(repeat, 0, x=0.5))
        for step in (0, 1):
            other.append(row(repeat, step, x=step, y=repeat))
    history.adopt(other, (1, 0))
    assert history.job_rows(0, 0) == [row(0, 0, x=0.5)]
    assert history.job_rows(1, 0) == [row(1, step, x=step, y=1) for step in (0, 1)]
