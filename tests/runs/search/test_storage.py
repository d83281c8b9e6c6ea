"""Storages that are damaged, deleted, locked or unreachable in the middle of a search."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import time
from importlib.util import find_spec

import optuna
import pytest
from optuna.trial import TrialState

from dml.config.schema import SearchConfig
from dml.core import locks, waits
from dml.core.waits import NoAnswerError
from dml.runs.folder.run_folder import RunFolder
from dml.runs.search.proposals import create_distributions
from dml.runs.search.storage import StorageError, open_journal
from dml.runs.search.study import Study
from tests import forked

SPACE = create_distributions({"loss.margin": {"low": 0, "high": 1}})
DAMAGED = {
    "junk": b"junk\n",
    "random bytes": b"\xff\x00\xfe\x80\n",
    "unknown operation": b'{"op_code": 99, "worker_id": "x"}\n',
    "no operation": b'{"a": 1}\n',
    "a list": b"[1]\n",
    "nothing": b"null\n",
    "deep": b"[" * 100_000 + b"\n",
}


@pytest.fixture
def folder(tmp_path):
    folder = RunFolder(tmp_path / "outputs" / "run" / "seed0")
    folder.path.mkdir(parents=True)
    return folder


def open_study(folder, storage=None):
    config = SearchConfig(
        name="bayes",
        trials=9,
        startup=9,
        sampler="gp",
        try_defaults=False,
        pruning=False,
        storage=storage,
    )
    return Study(folder, config, SPACE, seed=0)


def finish_trials(study, *values):
    for value in values:
        study.finish(study.claim_trial(), TrialState.COMPLETE, value)


def values_of(study):
    return [trial.value for trial in study.trials]


@pytest.mark.parametrize("line", DAMAGED.values(), ids=DAMAGED)
@pytest.mark.promise(
    "guides/search.md",
    "the journal of a search is damaged: it is cut at its first unreadable line, with a copy "
    "beside it and a note, and the trials before are kept",
)
def test_a_damaged_journal_is_cut(folder, capsys, line):
    finish_trials(open_study(folder), 0.5, 0.6)
    whole = folder.journal.read_bytes()
    later = whole.splitlines(keepends=True)[-1]
    folder.journal.write_bytes(whole + line + later)
    study = open_study(folder)
    printed = capsys.readouterr().out.replace("\n", " ")
    number = whole.count(b"\n") + 1
    assert f"is damaged from line {number} of {number + 1} on and was cut there" in printed
    copy = folder.search / "journal.damaged1.log"
    assert copy.name in printed
    assert copy.read_bytes() == whole + line + later
    assert values_of(study) == [0.5, 0.6]
    finish_trials(study, 0.7)
    assert values_of(open_study(folder)) == [0.5, 0.6, 0.7]
    assert len(list(folder.search.glob("*damaged*"))) == 1


def test_a_journal_that_is_in_use_is_not_cut(folder):
    study = open_study(folder)
    study.claim_trial()
    with open(folder.journal, "ab") as journal:
        journal.write(2 * b"junk\n")
    with pytest.raises(StorageError, match=rf"damaged, and process {os.getpid()} on "):
        open_study(folder)
    with pytest.raises(StorageError, match="deleted or damaged"):
        study.has_open_trials()
    study.release()
    assert len(open_study(folder).trials) == 1


def look(study, claimed):
    study.has_open_trials()


def finish(study, claimed):
    study.finish(claimed, TrialState.COMPLETE, 0.7)


@pytest.mark.parametrize("act", [look, finish])
@pytest.mark.promise(
    "guides/search.md",
    "the journal of a search is deleted while it runs: the trials that are known are written back, "
    "and one line says that the same command continues",
)
def test_a_deleted_journal_is_written_back(folder, act):
    study = open_study(folder)
    finish_trials(study, 0.5, 0.6)
    claimed = study.claim_trial()
    assert len(study.trials) == 3
    folder.journal.unlink()
    with pytest.raises(StorageError, match=r"deleted or damaged .*; the same command keeps"):
        act(study, claimed)
    study.release()
    again = open_study(folder)
    assert values_of(again) == [0.5, 0.6, None]
    assert again.claim_trial().params == claimed.params


def test_a_journal_that_was_replaced_is_not_continued(folder):
    study = open_study(folder)
    finish_trials(study, 0.5)
    other = folder.journal.with_name("other")
    shutil.copyfile(folder.journal, other)
    other.replace(folder.journal)
    with pytest.raises(StorageError, match="another file is in its place"):
        study.claim_trial()
    assert values_of(open_study(folder)) == [0.5]


@pytest.mark.promise(
    "guides/search.md",
    "the database of a search is locked, deleted or unreachable: one line says so, and once it can "
    "be used, the same command continues",
)
def test_a_locked_database(folder, tmp_path):
    url = f"sqlite:///{tmp_path}/runs.db?timeout=0.2"
    study = open_study(folder, url)
    finish_trials(study, 0.5)
    other = sqlite3.connect(tmp_path / "runs.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StorageError, match=r"^search\.storage: .* locked; the same command"):
        finish_trials(study, 0.6)
    other.execute("ROLLBACK")
    study.release()
    study = open_study(folder, url)
    finish_trials(study, 0.7)
    assert values_of(study) == [0.5, 0.7]


def empty(path):
    path.write_bytes(b"")


def overwrite(path):
    path.write_bytes(os.urandom(path.stat().st_size))


def drop(path):
    with sqlite3.connect(path) as database:
        database.execute("DROP TABLE trials")


@pytest.mark.parametrize("harm", [os.unlink, empty, overwrite, drop])
@pytest.mark.promise(
    "guides/search.md",
    "the database of a search is locked, deleted or unreachable: one line says so, and once it can "
    "be used, the same command continues",
)
def test_a_database_that_is_harmed(folder, tmp_path, harm):
    path = tmp_path / "runs.db"
    study = open_study(folder, f"sqlite:///{path}")
    finish_trials(study, 0.5)
    harm(path)
    with pytest.raises(StorageError, match=r"^search\.storage: ") as error:
        finish_trials(study, 0.6)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("target", ["startup_file", "absent"])
def test_a_journal_that_is_a_link(tmp_path, target):
    """It was cut at the first line that is none of Optuna's."""
    (tmp_path / "startup_file").write_text("alias ll='ls -l'\n")
    path = tmp_path / "journal.log"
    path.symlink_to(tmp_path / target)
    with pytest.raises(StorageError, match=r"journal\.log is a link, .*; move it away"):
        open_journal(path)
    assert (tmp_path / "startup_file").read_text() == "alias ll='ls -l'\n"
    assert not (tmp_path / "absent").exists()


def test_a_stopped_process_that_writes_the_journal(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(locks, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(locks, "kill_child", lambda path: False)
    monkeypatch.setattr(waits, "NOTE_SECONDS", 0.3)
    monkeypatch.setattr(waits, "LIMIT_SECONDS", 0.6)
    path = tmp_path / "journal.log"
    optuna.create_study(storage=open_journal(path), study_name="a")
    is_ready, ready = os.pipe()

    def hold():
        storage = open_journal(path)
        storage._backend._lock.acquire()
        os.write(ready, b"x")
        signal.pause()

    process = forked.context().Process(target=hold)
    process.start()
    os.read(is_ready, 1)
    os.kill(process.pid, signal.SIGSTOP)
    with pytest.raises(NoAnswerError, match=f"process {process.pid} on "):
        open_journal(path)
    process.kill()


POSTGRES = shutil.which("postgres") and shutil.which("initdb")


@pytest.fixture
def server(tmp_path):
    """Starts and kills a PostgreSQL server; its data stay."""
    if not POSTGRES or not (find_spec("psycopg2") or find_spec("psycopg")):
        pytest.skip("needs the programs of PostgreSQL, and psycopg2")
    data = tmp_path / "data"
    user = {"user": "nobody"} if os.geteuid() == 0 else {}  # it refuses root
    if user:
        for place in (tmp_path, *tmp_path.parents[:2]):
            place.chmod(0o755)
        data.mkdir()
        shutil.chown(data, "nobody")
    options = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": "/", **user}
    subprocess.check_call(["initdb", "-D", data, "-U", "tester", "-A", "trust"], **options)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running = []

    def start():
        words = ["postgres", "-D", data, "-p", str(port), "-c", "listen_addresses=127.0.0.1"]
        words += ["-c", "unix_socket_directories=", "-c", "fsync=off"]
        running.append(subprocess.Popen(words, **options))
        while socket.socket().connect_ex(("127.0.0.1", port)):
            assert running[-1].poll() is None
            time.sleep(0.05)
        driver = "psycopg2" if find_spec("psycopg2") else "psycopg"
        return f"postgresql+{driver}://tester@127.0.0.1:{port}/postgres"

    def kill():
        process = running.pop()
        process.send_signal(signal.SIGINT)  # fast shutdown: connections are ended
        process.wait()

    yield start, kill
    if running:
        kill()


def join(folder, url, values):
    study = open_study(folder, url)
    finish_trials(study, *values)


def test_a_live_server_that_is_killed_and_restarted(folder, server):
    start, kill = server
    url = start()
    study = open_study(folder, url)
    finish_trials(study, 0.5)
    other = forked.context().Process(target=join, args=(folder, url, [0.6]))
    other.start()
    other.join()
    assert other.exitcode == 0
    assert values_of(study) == [0.5, 0.6]
    claimed = study.claim_trial()
    kill()
    with pytest.raises(StorageError, match=r"^search\.storage: it cannot be used: ") as error:
        study.finish(claimed, TrialState.COMPLETE, 0.7)
    assert len(str(error.value).splitlines()) == 1
    study.release()
    with pytest.raises(StorageError, match="cannot be opened"):
        open_study(folder, url)
    start()
    again = open_study(folder, url)
    assert again.claim_trial().params == claimed.params
    assert values_of(again) == [0.5, 0.6, None]
