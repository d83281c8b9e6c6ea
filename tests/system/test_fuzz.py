"""Mutated commands: every one ends, and none with a traceback (soak).

Each command runs in a forked process, in a folder of its own with copies of three runs.
"""

from __future__ import annotations

import os
import random
import runpy
import shutil
import signal
import sys
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from tests.forked import context

ROOT = Path(__file__).resolve().parents[2]
TINY = "data=digits device=cpu protocol.epochs=1 protocol.steps_per_epoch=2 backbone.width=4"
PARTS = 4  # of equal size, each with its own seed
COMMANDS = 1000
LIMIT = 60.0  # seconds of one command
DOORS = (
    f"train.py {TINY}",
    f"train.py {TINY} loss=contrastive optim.lr=0.1 outputs=outputs",
    f"train.py {TINY} method=metrix loss=ms embedder.size=8 seed=3",
    "train.py experiment=mft_table2 scale=standin data=digits --cfg job",
    f"train.py -m {TINY} loss=mfcwms,ms seed=0",
    "train.py loss=mfcwms data=cub data.root=images",
    "train.py data=folder data.root=pictures",
    "train.py data=csv data.root=list.csv protocol=validation",
    "train.py resume=RUN",
    "train.py --help",
    "evaluate.py run=RUN",
    "evaluate.py run=RUN save=float16 outputs=elsewhere",
    "evaluate.py embeddings=RUN/embeddings.npz recall_at=[1,2]",
    "scripts/report.py single --no-figures --runs outputs --out reports",
    "scripts/report.py mft_table15 --no-figures --results runs.csv",
    "scripts/runs.py",
    "scripts/runs.py loss=ms seed=0 --json",
    "scripts/runs.py best data=digits",
    "scripts/runs.py compare RUN RUN2",
    "scripts/runs.py rm RUN --yes",
    "scripts/runs.py clean --yes",
    "scripts/plan.py mft_table15 data=digits --runs outputs",
    "scripts/prepare_data.py digits --root data",
    "scripts/prepare_data.py cub --archive cub.tgz --root data",
    "scripts/show_field.py --alpha 4 --delta 0.2 --out field.png",
    "scripts/analyze_metrix.py RUN --epochs 1",
    "scripts/draw_concepts.py --out pictures",
)
VALUES = (
    *("", "nan", "1e309", "-1", "0", "1e30", "null", "true", "é", "'", '"', "[1,2", "{a: 1}"),
    *("[]", "/dev/null", "/dev/null/x", "/proc/nowhere", "/root", ".", "..", "x" * 300, "a=b"),
    *("${nope}", "${oc.env:HOME}", "1,2", "range(3,0)", "choice(", "!!python/object:os.system"),
    *("%s", "\t", "&a"),
)  # fmt: skip
WORDS = ("--nope", "nope=1", "+x=1", "~loss", "++seed=x", "-m", "loss=", "=", "--", "seed", "a b")


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """A folder with `outputs/`: two finished runs and one that stopped."""
    home = tmp_path_factory.mktemp("fuzz")
    for words in ("loss=mfcwms", "loss=ms seed=1", "loss=contrastive"):
        command = ["train.py", *TINY.split(), *words.split()]
        status, output = run_command(command, home)
        assert status == 0, output
    (next(home.glob("outputs/single/*contrastive*/*")) / "summary.json").unlink()
    return home


def folders(home: Path) -> list[Path]:
    """Returns the run folders, relative to `home`."""
    return sorted(path.parent.relative_to(home) for path in home.glob("outputs/*/*/*/config.yaml"))


def mutate(words: list[str], draw: random.Random) -> list[str]:
    """Returns the words of a command with one to three mistakes."""
    words = list(words)
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(1, len(words)) if len(words) > 1 else 1
        kind = draw.randrange(6) if len(words) > 1 else 0
        if kind == 0:
            words.insert(at, draw.choice(WORDS))
        elif kind == 1:
            del words[at]
        elif kind == 2:
            words.append(words[at])
        elif kind == 3 and len(words[at]) > 2:
            place = draw.randrange(len(words[at]))
            words[at] = words[at][:place] + draw.choice("x=.-/ é,[") + words[at][place + 1 :]
        else:
            name, equals, _ = words[at].partition("=")
            words[at] = f"{name}={draw.choice(VALUES)}" if equals else draw.choice(VALUES)
    return words


def run_command(words: list[str], home: Path) -> tuple[int, str]:
    """Runs a command in a forked process; returns its exit status and what it printed.

    The status is the number of the signal, below zero, of a command that was ended by one.
    """
    log = home / "printed.txt"
    printed = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    process = forked(words, home, printed, printed)
    process.join(LIMIT)
    if process.is_alive():
        os.killpg(process.pid, signal.SIGKILL)
        process.join()
    return process.exitcode, log.read_text("utf-8", "replace")


def forked(words: list[str], home: Path, output: int, errors: int) -> BaseProcess:
    """Starts a command as a fresh process would; `output`, `errors`: where it prints."""

    def become() -> None:
        os.setsid()
        os.chdir(home)
        for number, descriptor in enumerate((os.open(os.devnull, os.O_RDONLY), output, errors)):
            os.dup2(descriptor, number)
        sys.stdin, sys.argv = open(0), words  # noqa: SIM115
        sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]
        runpy.run_path(str(ROOT / words[0]), run_name="__main__")

    process = context().Process(target=become)
    process.start()
    os.close(output)
    return process


def problems_of(words: list[str], home: Path) -> Iterator[str]:
    """Runs a command and yields what is wrong with its end."""
    status, output = run_command(words, home)
    shown = " ".join(words)
    if status < 0:
        yield f"{shown}: ended by signal {-status} after {LIMIT} s or by itself"
    if "Traceback" in output:
        yield f"{shown}: traceback\n{output[-1500:]}"
    if status > 0 and not output.strip():
        yield f"{shown}: status {status} without a word"


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(PARTS))
def test_mutated_commands(runs, tmp_path, seed):
    draw = random.Random(seed)
    problems: list[str] = []
    for number in range(COMMANDS // PARTS):
        home = tmp_path / str(number)
        shutil.copytree(runs, home)
        names = dict(zip(("RUN2", "RUN"), map(str, folders(home)), strict=False))
        words = DOORS[number % len(DOORS)].split()
        for name, folder in names.items():
            words = [word.replace(name, folder) for word in words]
        words = mutate(words, draw)
        if words[0] == "train.py" and not any(word.startswith("resume") for word in words):
            words.append("max_minutes=0.2")  # it may be left without any small value
        problems += problems_of(words, home)
        shutil.rmtree(home, ignore_errors=True)
    assert not problems, f"{len(problems)} problems\n" + "\n".join(problems)


@pytest.mark.parametrize("script", ["scripts/runs.py", "train.py"])
def test_a_closed_pipe_and_a_full_disk_end_in_at_most_one_line(tmp_path, script):
    read, write = os.pipe()
    os.close(read)
    for output, lines in ((write, 0), (os.open("/dev/full", os.O_WRONLY), 1)):
        log = tmp_path / f"{lines}.txt"
        errors = os.open(log, os.O_WRONLY | os.O_CREAT)
        forked([script, "--help"], tmp_path, output, errors).join()
        found = log.read_text().splitlines()
        assert len(found) == lines
        assert all(line.startswith("error: ") for line in found)
