"""The program `dml`: mistakes at every command are one line, with the nearest word."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from dml.cli.program import COMMANDS, DISTRIBUTED, main
from tests.commands import evaluate, prepare, runs, train

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
COMMAND_FUNCTIONS = {"train": train, "evaluate": evaluate, "prepare": prepare, "runs": runs}
INTERRUPTED = """
import sys
from importlib.abc import MetaPathFinder

class Interruption(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "dml.core.errors":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interruption())
from dml.cli.entry_point import main
sys.exit(main(["--help"]))
"""


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("trian", "did you mean 'train'?"),
        ("prepare_data", "did you mean 'prepare'?"),
        ("help", "did you mean '--help'?"),
        ("--hlep", "did you mean '--help'?"),
        ("-help", "did you mean '--help'?"),
        ("version", "did you mean '--version'?"),
        ("xyz", f"one of {', '.join(COMMANDS)}"),
        ("--version x", "'x' is one word too many after --version"),
        ("-h train", "'train' is one word too many after -h"),
    ],
)
def test_a_mistake_before_the_command(words, hint, capsys):
    assert main(words.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: dml: ")
    assert hint in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("word", ["--multirn", "--hlep", "--onxx"])
@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_option_is_one_line(command, word, capsys):
    """Also if its value follows, which is no word too many."""
    assert main([command, word, "value"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("command", sorted({*COMMANDS} - {"train", "evaluate", "runs", "check"}))
def test_only_necessary_words_are_missing(command, capsys):
    assert main([command]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: missing: ")
    assert "option" not in err.partition(";")[0]


@pytest.mark.parametrize("command", ["train", "evaluate"])
@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("--cfg", "--cfg/-c: expected one argument"),
        ("--cfg jbo", "--cfg/-c: invalid choice: 'jbo'"),
        ("-c", "--cfg/-c: expected one argument"),
        ("--package", "--package/-p: expected one argument"),
        ("--info x", "--info/-i: invalid choice: 'x'"),
        ("--run=outputs/x", "--run: takes no value"),
        ("--multirun=true", "--multirun: takes no value"),
        ("--inof", "--inof: no such flag; did you mean '--info'?"),
    ],
)
def test_a_wrong_flag_of_hydra_is_one_line(command, words, problem, capsys):
    assert main([command, *words.split()]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {problem}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("search x.npz 1 -k x", "-k: 'x' is not a whole number from 1"),
        ("search x.npz 1 -k 1.5", "-k: '1.5' is not a whole number from 1"),
        ("export run net --repeat x", "--repeat: 'x' is not a whole number from 0"),
        ("embed run photos x.npz --fold -1", "--fold: '-1' is not a whole number from 0"),
    ],
)
def test_a_wrong_number_is_one_line(words, problem, capsys):
    assert main(words.split()) == 2
    assert capsys.readouterr().err.startswith(f"error: {problem}")


@pytest.mark.parametrize("command", ["runs", "plan mft_table12", "report single"])
@pytest.mark.parametrize(
    ("folder", "problem"),
    [
        (__file__, "is not a folder"),
        (f"{__file__}/x", "Not a directory"),
        ("x" * 300, "File name too long"),
        ("", "is empty"),
    ],
)
def test_a_folder_of_runs_that_is_none(command, folder, problem, capsys):
    assert main([*command.split(), "--runs", folder]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: --runs: ")
    assert problem in err
    assert err.count("\n") == 1


LONG = "x" * 300


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("train outputs=file", "outputs: file is not a folder"),
        ("train outputs=file/x", "outputs: file/x: Not a directory"),
        (f"train outputs={LONG}", f"outputs: {LONG}: File name too long"),
        (f"train data=folder data.root={LONG}", "data.name: "),
        (f"train data=features data.root={LONG}", "data.name: "),
        (f"train params={LONG}.yaml", f"params: {LONG}.yaml is neither"),
        (f"train resume={LONG}", f"resume: '{LONG}' is not a run folder"),
        ("train --config-dir nowhere", "--config-dir: there is no folder nowhere"),
        ("evaluate outputs=file", "outputs: file is not a folder"),
        (f"evaluate run={LONG}", f"run: {LONG} is not a run folder"),
        (f"evaluate embeddings={LONG}.npz", "embeddings: x"),
        ("evaluate embeddings=nowhere.npz", "embeddings: nowhere.npz does not exist"),
        ("evaluate embeddings=.", "embeddings: . cannot be read (a folder"),
        ("prepare cub --root file", "--root: file is not a folder"),
        (f"prepare cub --root {LONG}", f"--root: {LONG}: File name too long"),
        ("prepare cub --archive nowhere.tgz", "--archive nowhere.tgz does not exist"),
        (f"prepare cub --archive {LONG}.tgz", f"--archive {LONG}.tgz does not exist"),
        ("prepare CUB", "'CUB' is not a dataset; did you mean 'cub'?"),
        ("runs =ms", "=ms: neither a condition"),
    ],
)
def test_a_path_that_cannot_be_used(words, problem, tmp_path, monkeypatch, capsys):
    """The option is named, and nothing is made."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    name, *more = words.split()
    assert COMMAND_FUNCTIONS[name](more) in (1, 2)
    err = capsys.readouterr().err
    assert err.startswith(f"error: {problem}")
    assert err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_interruption_while_modules_are_loaded_is_one_line():
    words = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


@pytest.mark.parametrize("words", ["trian", "train los=ms", "runs --jsn", "prepare cbu"])
def test_the_exit_status_tells_where_no_error_can_be_written(words, tmp_path):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "dml", *words.split()]
        done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, stderr=full, check=False)
    assert done.returncode == 2


def show_help(command):
    """Runs `--help`, after which argparse ends the process."""
    with suppress(SystemExit):
        main([command, "--help"])


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {*DISTRIBUTED}))
def test_torchrun_gets_the_answer_of_one_process(command, monkeypatch, capsys):
    for name, value in {"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "2", "RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    show_help(command)
    first = capsys.readouterr().out
    assert first.startswith(f"note: dml {command} works in one of the 2 processes of torchrun\n")
    monkeypatch.setenv("RANK", "1")
    show_help(command)
    assert capsys.readouterr().out == ""
    monkeypatch.delenv("TORCHELASTIC_RUN_ID")  # variables that are left over
    show_help(command)
    assert "works in one" not in (text := capsys.readouterr().out)
    assert text


@pytest.mark.parametrize("command", DISTRIBUTED)
def test_torchrun_trains_in_all_processes(command, monkeypatch, capsys):
    for name, value in {"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "2", "RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    show_help(command)
    assert capsys.readouterr().out


ENDING = """
import atexit, sys
from dml.cli import entry_point

class Late:
    def __del__(self):
        print("taken apart")

def main(words, run=entry_point.main):
    sys.late = Late()
    atexit.register(print, "at the end")  # as libraries do
    return run(words)

entry_point.main = main
entry_point.run({words!r})
"""


@pytest.mark.parametrize(("words", "status"), [(["--version"], 0), (["nope"], 2)])
def test_a_process_ends_with_the_status_and_takes_nothing_apart(words, status):
    """Taking PyTorch apart would take seconds at the end of every command."""
    call = [sys.executable, "-c", ENDING.format(words=words)]
    done = subprocess.run(call, capture_output=True, text=True)
    assert done.returncode == status
    assert done.stdout.endswith("at the end\n")


def test_an_exception_that_nobody_expected_is_reported_by_python():
    code = "from dml.cli import entry_point\nentry_point.main = lambda words: 1 / 0\n"
    call = [sys.executable, "-c", f"{code}entry_point.run([])"]
    done = subprocess.run(call, capture_output=True, text=True)
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr


def test_a_wrong_variable_of_a_launcher_is_named_once(monkeypatch, capfd, tmp_path):
    monkeypatch.setenv("WORLD_SIZE", "x")
    monkeypatch.setenv("RANK", "0")
    assert train(["data=digits", "loss=ms", f"outputs={tmp_path}"]) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("error: WORLD_SIZE=x: not a whole number from 1; for one process unset")
