"""`dml check`: its words, its lines and its exit status; the checks have tests of their own."""

import json

import pytest

from dml.cli import check_command
from dml.cli.machine import checks
from dml.cli.machine.outcome import Check, Outcome
from dml.training.process_group import SINGLE_PROCESS
from tests.commands import check
from tests.training.processes import in_two_processes

LOCKS = Check("locks", "a lock of two processes", lambda: Outcome("refused"), "")
SPACE = Check("space", "free space", lambda: Outcome("0.1 GB", "make room", works=False), "")
HUB_NOTE = Outcome("no such host", "prepare", works=False, is_needed=False)
HUB = Check("hub", "the hub of weights", lambda: HUB_NOTE, "")


@pytest.fixture
def listed(monkeypatch):
    """Replaces the checks; returns the folders for which they were listed."""
    folders = []

    def replace(common, others):
        def list_common(outputs, world):
            folders.append(outputs)
            return iter(common)

        monkeypatch.setattr(checks, "list_common_checks", list_common)
        monkeypatch.setattr(checks, "list_other_checks", lambda outputs: iter(others))
        return folders

    return replace


def test_all_works(listed, capsys):
    listed([LOCKS], [HUB])
    assert check([]) == 0
    out, err = capsys.readouterr()
    above, _, block = out.partition("To paste into an issue:")
    assert above.splitlines() == [
        "ok      locks       a lock of two processes: refused",
        "note    hub         the hub of weights: no such host",
        "                    to do: prepare",
        "",
        "all that runs need works",
        "",
    ]
    lines = block.strip().splitlines()
    assert lines[0] == lines[-1] == "```"
    assert lines[1].startswith("revision ")
    assert "torch " in lines[2]
    assert lines[3:-1] == ["ok      locks: refused", "note    hub: no such host"]
    assert not err


def test_a_failure(listed, capsys):
    listed([LOCKS], [SPACE, HUB])
    assert check(["outputs=here"]) == 1
    out = capsys.readouterr().out
    assert "\nfailed: space\n" in out
    assert "to do: make room" in out
    assert out.count("hub") == 3  # what follows is tried, too


@pytest.mark.parametrize("folder", ["outputs", "/shared/out", "a=b"])
def test_the_folder(listed, folder):
    folders = listed([], [])
    assert check([] if folder == "outputs" else [f"outputs={folder}"]) == 0
    assert [str(path) for path in folders] == [folder]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["output=x"], "output: no such option; did you mean 'outputs'?"),
        (["device=cpu"], "device: no such option; the command takes outputs=<folder>"),
        (["x"], "x: no such option"),
        (["outputs="], "outputs: is empty"),
        (["outputs"], "outputs: is empty"),
        (["outputs=a", "outputs=b"], "outputs: is given twice"),
        (["outputs=mine"], "outputs: mine is not a folder"),
        (["--gpu"], "--gpu: no such option"),
    ],
)
def test_wrong_words(listed, tmp_path, monkeypatch, capsys, words, message):
    folders = listed([], [])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").write_text("mine")
    assert check(words) == 2
    assert message in capsys.readouterr().err
    assert not folders


def test_what_is_tried(tmp_path):
    common = [one.name for one in checks.list_common_checks(tmp_path, SINGLE_PROCESS)]
    others = [one.name for one in checks.list_other_checks(tmp_path)]
    assert common == ["processes", "locks"]
    assert others[:4] == ["disk", "space", "machine", "GPU"]
    assert {"precision", "products", "step", "hub", "dataset", "input", "network", "first row"} < {
        *others
    }
    for one in (*checks.list_common_checks(tmp_path, SINGLE_PROCESS),):
        assert one.tried
        assert one.remedy


@pytest.mark.parametrize("columns", [30, 200])
def test_lines_fit_the_terminal(listed, monkeypatch, capsys, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    listed([LOCKS], [SPACE])
    check([])
    above = capsys.readouterr().out.partition("To paste")[0]
    assert max(map(len, above.splitlines())) <= columns


@pytest.mark.parametrize(
    ("tasks", "rank", "is_noted"), [("2", "0", True), ("2", "1", False), ("1", "0", False)]
)
def test_tasks_of_srun_are_separate(listed, monkeypatch, capsys, tasks, rank, is_noted):
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", tasks)
    monkeypatch.setenv("SLURM_PROCID", rank)
    listed([LOCKS], [])
    assert check([]) == 0
    assert ("note: srun started 2 separate processes" in capsys.readouterr().err) == is_noted


def check_together():
    """The checks of torchrun: the first process prints, and alone does the rest."""
    checks.list_other_checks = lambda outputs: iter([SPACE])
    return int(check_command.main(["outputs=out"]))


def test_two_processes_of_torchrun(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert in_two_processes(check_together, tmp_path) == [1, 0]
    logs = [(tmp_path / f"{rank}.log").read_text() for rank in range(2)]
    assert "gloo between 2 processes" in logs[0]
    assert "2 processes on 1 machine, each in turn" in logs[0]
    assert "failed: space" in logs[0]
    assert "To paste" not in logs[1]
    assert json.loads((tmp_path / "1.json").read_text()) == 0
