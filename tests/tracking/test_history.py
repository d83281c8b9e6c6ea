import pytest

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


def test_rows_are_sorted_by_the_numbers_of_repeat_and_fold(tmp_path):
    history = History(tmp_path / "history.csv")
    for repeat, fold, step in ((10, 0, 3), (2, 10, 3), (2, 9, 3), (10, 0, 1), (0, 0, 1), (2, 9, 1)):
        history.append({**row(repeat, step), "fold": fold})
    history.sort()
    found = [(int(r["repeat"]), int(r["fold"]), int(r["step"])) for r in rows(tmp_path)]
    assert found == [(0, 0, 1), (2, 9, 3), (2, 9, 1), (2, 10, 3), (10, 0, 3), (10, 0, 1)]


def test_rows_are_written_behind_the_others(tmp_path):
    history = History(tmp_path / "history.csv")
    history.append(row(0, 0, x=0.5))
    first = history.path.stat()
    for step in range(1, 5):
        history.append(row(0, step, x=step / 3))
    assert history.path.stat().st_ino == first.st_ino  # it was not replaced
    assert History(history.path).job_rows(0, 0) == history.job_rows(0, 0)
    history.append(row(0, 5, y=1.0))  # the header changes
    assert [r["y"] for r in rows(tmp_path)] == [""] * 5 + ["1.0"]
    history.append(row(0, 6, x=0.25))
    assert History(history.path).job_rows(0, 0) == history.job_rows(0, 0)


def test_a_file_that_others_have_changed_is_written_again(tmp_path):
    history = History(tmp_path / "history.csv")
    changes = [
        lambda path: path.unlink(),
        lambda path: path.write_text("repeat,fold\n"),
        lambda path: path.write_text(path.read_text().replace("0.5", "0.7")),
    ]
    for step, change in enumerate(changes):
        history.append(row(0, 2 * step, x=0.5))
        change(history.path)
        history.append(row(0, 2 * step + 1, x=0.5))
        assert History(history.path).job_rows(0, 0) == history.job_rows(0, 0)
    assert len(rows(tmp_path)) == 6


def test_a_last_row_that_a_crash_has_cut_is_left_out(tmp_path):
    history = History(tmp_path / "history.csv")
    for step in range(3):
        history.append(row(0, step, x=step / 3, y=step))
    whole = history.path.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    for end in range(last, whole.rindex(b",") + 1):
        history.path.write_bytes(whole[:end])
        again = History(history.path)
        assert [r["step"] for r in again.rows] == ["0", "1"]
        again.append(row(0, 2, x=2 / 3, y=2))
        assert history.path.read_bytes() == whole


def test_a_full_disk_leaves_the_rows_before(tmp_path, monkeypatch):
    history = History(tmp_path / "history.csv")
    for step in range(2):
        history.append(row(0, step, x=0.5))
    before = history.path.read_bytes()

    def fail(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fail)
        with pytest.raises(OSError, match="No space") as error:
            history.append(row(0, 2, x=0.5))
    assert error.value.filename == str(history.path)
    assert history.path.read_bytes() == before
