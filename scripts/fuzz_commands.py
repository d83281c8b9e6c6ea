"""Random wrong commands: python scripts/fuzz_commands.py --seed 0 --number 600

Every command runs in a forked process in a fresh copy of a small folder with a run, embeddings,
photos, and files that cannot be read. It fails if it prints a traceback or dies of a signal, if it
neither writes nor uses the processor for 30 s, if it ends with status 0 although a word is known to
be wrong, or if a file that existed has changed. A command that works longer than --seconds is cut,
which is no failure. --only repeats one by its number. Linux only.
"""

from __future__ import annotations

import importlib
import os
import random
import resource
import shlex
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import environment  # noqa: F401

from dml.cli.error_lines import report_errors
from dml.cli.parser import make_parser

SILENCE = 30.0  # seconds
LOOK = 0.5  # seconds between two looks at a command that runs
MEMORY = 6 << 30  # bytes of a command
FILE_SIZE = 1 << 30
IDLE_SHARE = 0.01  # of a core: what polling takes
UNUSABLE = ("missing", "empty", "binary", "pipe", "folder/mine.txt", "ünï 文.npz", "\udce4", "a\nb")
PATHS = (
    *UNUSABLE,
    "folder",
    "",
    ".",
    "~",
    "\x1b]0;t\x07",
    "x" * 300,
    "-",
    "photos.npz/x",
    "a/../b",
)
OUTPUTS = (*PATHS, "emb.npz", "photos/0.png", "list.csv", "run", "../outside.txt")
NOT_COUNTS = ("-1", "nan", "inf", "-inf", "1e400", "abc", "1.5", "")
NOT_NUMBERS = ("nan", "inf", "-inf", "1e400", "abc", "1,2", "[1]")
NUMBERS = ("0", str(2**63), "1e-400", "\u0661", "0x10", "1_0", "true")
TEXTS = ("nope", "\x1b[31m", "\u202e", "{", "[", "${x}", "'", "a=b=c", "=1", "é" * 9, "??")
KINDS: dict[
    str, tuple[tuple[str, ...], tuple[str, ...]]
] = {  # odd values, and those that are wrong
    "input": ((*PATHS, "emb.npz", "list.csv", "run"), UNUSABLE),
    "output": (OUTPUTS, ()),
    "count": ((*NOT_COUNTS, *NUMBERS), (*NOT_COUNTS, "0")),
    "number": ((*NOT_NUMBERS, *NUMBERS, "-1"), NOT_NUMBERS),
    "seed": (("nan", "inf", "1.5", "abc", "", "-1", str(2**64)), ("nan", "inf", "1.5", "abc", "")),
    "small": (NOT_COUNTS, NOT_COUNTS),  # numbers of processes: a large one would start them
    "choice": ((*TEXTS, "", "0", "missing"), (*TEXTS, "0", "missing")),
    "text": ((*TEXTS, "", "x" * 300), ()),
}
JUNK = (
    "=1",
    "x=1",
    "~data",
    "+nope=1",
    "''",
    "--nope",
    "-Z",
    "{",
    "[1",
    "\x1b[31m=2",
    "\udcff",
    "a b",
)


@dataclass(frozen=True)
class Command:
    """A command that works, and what may be changed in it.

    Attributes:
        module: with the function of the command.
        function: its name.
        words: positional words, each with its kind; an empty kind stays.
        options: in the command, with their kinds and values; None: not in it, but it exists.
        flags: that the command knows.
        changes: files and folders that are the command's own.
        share: how often it is taken.
        wrong: whether no form of it can work here.
    """

    module: str
    function: str = "main"
    words: tuple[tuple[str, str], ...] = ()
    options: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    share: int = 2
    wrong: bool = False


def _absent(kind: str, *names: str) -> dict[str, tuple[str, str | None]]:
    return dict.fromkeys(names, (kind, None))


TRAIN = {
    **_absent("count", "protocol.repeats", "protocol.evaluate_every", "protocol.steps_per_epoch"),
    **_absent("number", "optim.lr", "optim.weight_decay", "data.label_noise", "loss.alpha"),
    **_absent(
        "choice", "loss", "method", "protocol", "backbone", "tracking", "search", "precision"
    ),
    **_absent("choice", "experiment", "debug", "data.sampler", "optim", "data.background"),
    **_absent("input", "params", "resume", "backbone.weights"),
    **_absent("seed", "seed"),
    **_absent("small", "data.workers", "protocol.workers"),
    **_absent("text", "name", "note", "tracking._target_", "loss._target_"),
    "data": ("choice", "digits"),
    "device": ("choice", "cpu"),
    "protocol.epochs": ("count", "1"),
    "embedder.size": ("count", "8"),
    "backbone.width": ("count", "4"),
    "data.batch_size": ("count", "32"),
    "data.eval_batch_size": ("count", "1000"),
    "max_minutes": ("number", "0.1"),
    "outputs": ("output", "out"),
}
PHOTOS = {**TRAIN, "data": ("", "folder"), "data.root": ("input", "photos")}
PHOTOS |= {"backbone.width": ("count", None), "data.batch_size": ("count", "4")}
PHOTOS |= {"backbone": ("", "small_cnn"), "backbone.weights": ("input", None)}
FEATURES = {**TRAIN, "data": ("", "features"), "data.root": ("input", "emb.npz")}
FEATURES |= {"backbone.width": ("count", None), "data.batch_size": ("count", "4")}
EVALUATE = {
    "device": ("choice", "cpu"),
    **_absent("choice", "evaluation.backend", "save", "data"),
    **_absent("count", "data.eval_batch_size"),
    **_absent("text", "evaluation.measures"),
}
NETWORK = _absent("small", "--fold", "--repeat")
COMMANDS: dict[str, Command] = {
    "train": Command("dml.cli.train_command", options=TRAIN, changes=("run",), share=6),
    "train folder": Command(
        "dml.cli.train_command",
        options=PHOTOS,
        changes=("run",),
    ),
    "train features": Command(
        "dml.cli.train_command",
        options=FEATURES,
        changes=("run",),
    ),
    "evaluate run": Command(
        "dml.cli.evaluate_command",
        options={**EVALUATE, "run": ("input", "run")},
        changes=("run",),
    ),
    "evaluate file": Command(
        "dml.cli.evaluate_command",
        options={**EVALUATE, "embeddings": ("input", "emb.npz")},
        changes=("emb.evaluation.json",),
    ),
    "embed": Command(
        "dml.cli.network_commands",
        "embed",
        (("run", "input"), ("photos", "input"), ("new.npz", "output")),
        {**NETWORK, **_absent("count", "--batch-size"), **_absent("small", "--views")},
        ("--features", "--float16", "--trust"),
        share=3,
    ),
    "search": Command(
        "dml.cli.network_commands",
        "search",
        (("emb.npz", "input"), ("0", "input")),
        {"-k": ("count", "2"), "--picture": ("output", None)},
        ("--index", "--csv", "--trust"),
        share=3,
    ),
    "export": Command(
        "dml.cli.network_commands",
        "export",
        (("run", "input"), ("net", "output")),
        NETWORK,
        ("--trust",),
    ),
    "report": Command(
        "dml.cli.report_command",
        words=(("single", "choice"),),
        options={
            "--runs": ("input", "outputs"),
            "--out": ("output", "out"),
            **_absent("input", "--results"),
        },
        flags=("--no-figures",),
    ),
    "runs": Command(
        "dml.cli.runs_command",
        words=(("list", "choice"),),
        options={"--runs": ("text", "outputs")},
        flags=("--json",),
    ),
    "runs best": Command(
        "dml.cli.runs_command",
        words=(("best", ""), ("loss=ms", "text")),
        options={"--runs": ("text", "outputs")},
        flags=("--json",),
    ),
    "runs compare": Command(
        "dml.cli.runs_command",
        words=(("compare", ""), ("run", "input"), ("run", "input")),
        options={"--runs": ("text", "outputs")},
    ),
    "runs clean": Command(
        "dml.cli.runs_command",
        words=(("clean", ""), ("loss=ms", "text")),
        options={"--runs": ("text", "outputs")},
        flags=("--yes",),
        changes=("outputs",),
    ),
    "prepare": Command(
        "dml.cli.prepare_command",
        words=(("digits", "choice"),),
        options={"--root": ("text", "photos")},
        flags=("--check",),
    ),
    "prepare cub": Command(
        "dml.cli.prepare_command",
        words=(("cub", ""),),
        options={"--root": ("output", "data"), "--archive": ("input", "missing")},
        wrong=True,
    ),
    "plan": Command(
        "scripts.plan",
        words=(("mft_table2", "choice"),),
        options={
            "--runs": ("text", "outputs"),
            **_absent("count", "protocol.epochs", "protocol.repeats", "data.batch_size"),
            **_absent("choice", "device", "data", "loss"),
            **_absent("number", "optim.lr"),
        },
        share=3,
    ),
    "rehearse": Command(
        "scripts.rehearse",
        words=(("mft_table2", ""), ("nope", "choice")),
        options={"--outputs": ("output", "out")},
        wrong=True,
    ),
    "check_loss": Command(
        "scripts.check_loss",
        words=(("emb.npz", "input"), ("loss=nope", "text")),
        options={"--name": ("text", None), "--outputs": ("output", "out")},
        flags=("--quick",),
        wrong=True,
    ),
    "show_field": Command(
        "scripts.show_field",
        options={
            "--out": ("output", "field.png"),
            **_absent("number", "--alpha", "--delta"),
            **_absent("seed", "--seed"),
        },
        share=3,
    ),
    "show_proxies": Command(
        "scripts.show_proxies",
        words=(("digits", "choice"),),
        options={
            "--stages": ("count", "1"),
            "--classes": ("count", "3"),
            "--root": ("text", None),
            "--out": ("output", "out"),
            **_absent("count", "embedder.size", "data.batch_size"),
        },
        flags=("--samples",),
    ),
    "draw_emoji": Command(
        "scripts.draw_emoji",
        words=(("run", "input"),),
        options={"--out": ("output", "emoji.png")},
        wrong=True,
    ),
    "benchmark": Command(
        "scripts.benchmark",
        words=(("losses", "choice"), ("--nope", "text")),
        wrong=True,
    ),
}


@dataclass(frozen=True)
class Case:
    """A command with its words, whether they are wrong, and what it may change."""

    command: Command
    name: str
    words: tuple[str, ...]
    wrong: bool

    @property
    def line(self) -> str:
        """The command as it would be typed, odd characters as escapes."""
        return ascii(f"{self.name}: {shlex.join(self.words)}")


@dataclass(frozen=True)
class Outcome:
    """How a command ended: its status (negative: a signal), its output, and what is wrong."""

    status: int
    text: str
    problems: tuple[str, ...]
    cut: bool


def make_case(seed: int, number: int, names: Sequence[str] = tuple(COMMANDS)) -> Case:
    """Returns the command of a number; the same for the same seed and names."""
    chance = random.Random(f"{seed}-{number}")
    (name,) = chance.choices(names, [COMMANDS[one].share for one in names])
    command = COMMANDS[name]
    words = [word for word, _ in command.words]
    options = {name: value for name, (_, value) in command.options.items() if value is not None}
    wrong, extra = command.wrong, []
    places = [place for place, (_, kind) in enumerate(command.words) if kind]
    free = [option for option, (kind, _) in command.options.items() if kind]
    chance.shuffle(places)
    chance.shuffle(free)
    if words and not command.wrong and chance.random() < 0.05:
        words.pop()
        wrong |= command.function != "main"  # those of networks need all words
        places = []
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3))):
        change = chance.choice(("word", "option", "option", "option", "junk", "flag"))
        bad = False
        if change == "word" and places:
            place = places.pop()
            words[place], bad = _odd_value(chance, command.words[place][1])
        elif change == "option" and free:
            option = free.pop()
            options[option], bad = _odd_value(chance, command.options[option][0])
        elif change == "junk":
            extra.append(chance.choice(JUNK))
            bad = True
        elif change == "flag" and command.flags:
            extra.append(chance.choice(command.flags))
        wrong |= bad
    for option, value in options.items():
        extra += [option, value] if option.startswith("-") else [f"{option}={value}"]
    return Case(command, name, (*words, *extra), wrong)


def _odd_value(chance: random.Random, kind: str) -> tuple[str, bool]:
    values, bad = KINDS[kind]
    value = chance.choice(values)
    return value, value in bad


def prepare(folder: Path) -> None:
    """Makes the folder that every command gets a copy of: a run, and files of many kinds."""
    import numpy as np
    from PIL import Image

    for label in range(4):
        (folder / "photos" / str(label)).mkdir(parents=True)
        for number in range(4):
            picture = Image.effect_noise((8, 8), 40 * label + 10)
            picture.save(folder / "photos" / str(label) / f"{number}.png")
    vectors = np.random.default_rng(0).normal(size=(16, 8)).astype("float32")
    labels = np.repeat(np.arange(4), 4)
    np.savez(folder / "emb.npz", embeddings=vectors, labels=labels)
    (folder / "list.csv").write_text("path,label\nphotos/0/0.png,a\nphotos/1/0.png,b\n")
    (folder / "empty").touch()
    (folder / "binary").write_bytes(bytes(range(256)) * 8)
    (folder / "folder").mkdir()
    (folder / "folder" / "mine.txt").write_text("mine")
    words = [f"{name}={value}" for name, (_, value) in TRAIN.items() if value is not None]
    words = ["outputs=outputs", "loss=ms", *(w for w in words if not w.startswith("outputs="))]
    trained = Case(COMMANDS["train"], "train", tuple(words), False)
    pid = _start(trained, folder, folder.parent / "prepared.log")
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status:
        raise RuntimeError((folder.parent / "prepared.log").read_text())
    (run,) = (path.parent for path in folder.glob("outputs/**/summary.json"))
    shutil.copytree(run, folder / "run")


def run_case(case: Case, prepared: Path, seconds: float, silence: float = SILENCE) -> Outcome:
    """Runs a command in a copy of the prepared folder and checks it."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        here, log = place / "here", place / "log"
        shutil.copytree(prepared, here)
        os.mkfifo(here / "pipe")
        (place / "outside.txt").write_text("mine")
        before = _snapshot(place)
        pid = _start(case, here, log)
        status, ending = _watch(pid, log, seconds, silence)
        text = log.read_text(errors="backslashreplace")
        problems = [ending] if ending == "silent" else []
        problems += _check_output(case, status, text, cut=bool(ending))
        problems += _check_files(case, before, _snapshot(place))
        return Outcome(status, text, tuple(problems), ending == "cut")


def _check_output(case: Case, status: int, text: str, cut: bool) -> list[str]:
    problems = []
    if "Traceback (most recent call last)" in text:
        problems.append("traceback")
    if status < 0 and not cut:
        problems.append(f"died of signal {-status}")
    if status == 0 and case.wrong:
        problems.append("status 0 on nonsense")
    if status > 0 and not text.strip():
        problems.append("fails without a word")
    return problems


def _check_files(case: Case, before: dict[str, object], after: dict[str, object]) -> list[str]:
    problems = []
    for name, content in before.items():
        own = name.removeprefix("here/").startswith(case.command.changes or ("\0",))
        if after.get(name) != content and not own:
            problems.append(f"changes {name}")
    return problems[:3]


def _snapshot(place: Path) -> dict[str, object]:
    """Returns the bytes of files, and the kind of all else."""
    found: dict[str, object] = {}
    for path in place.rglob("*"):
        is_file = path.is_file() and not path.is_symlink()
        if path.suffix != ".lock" and path.name != "log":
            kept = path.read_bytes() if is_file else path.lstat().st_mode
            found[str(path.relative_to(place))] = kept
    return found


def _start(case: Case, folder: Path, log: Path) -> int:
    """Forks a process that runs the command in a session of its own; returns its id."""
    sys.stdout.flush()
    sys.stderr.flush()
    if pid := os.fork():
        return pid
    status = 1
    try:
        status = _run_here(case, folder, log)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _run_here(case: Case, folder: Path, log: Path) -> int:
    os.setsid()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE, FILE_SIZE))
    os.chdir(folder)
    os.environ.update(HOME=str(folder.parent), HF_HUB_OFFLINE="1")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.stdout = open(1, "w", closefd=False, errors="surrogateescape")  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, errors="backslashreplace")  # noqa: SIM115
    sys.argv = [case.command.module.rpartition(".")[2], *case.words]
    main: Callable[[], int] = getattr(
        importlib.import_module(case.command.module), case.command.function
    )
    return main()


def _watch(pid: int, log: Path, seconds: float, silence: float) -> tuple[int, str]:
    """Waits for a process; returns its status, and `silent` or `cut` if it was killed for that."""
    begin = last = looked = time.monotonic()
    work, written = 0.0, 0
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), ""
        time.sleep(0.02)
        now = time.monotonic()
        if now - looked < LOOK:
            continue
        looked, used = now, _processor_seconds(pid)
        size = log.stat().st_size if log.exists() else 0
        if used > work + IDLE_SHARE * (now - last) or size != written:
            last, work, written = now, used, size
        ending = "silent" if now - last > silence else "cut" if now - begin > seconds else ""
        if ending:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return -signal.SIGKILL, ending


def _processor_seconds(session: int) -> float:
    """Returns the processor time of all processes of a session."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[3]) == session:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


@report_errors
def main(argv: list[str] | None = None) -> int:
    """Returns 0 if no command failed, else 1."""
    parser = make_parser(__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--number", type=int, default=600, help="of commands (default: 600)")
    parser.add_argument("--first", type=int, default=0, help="number of the first command")
    parser.add_argument("--only", type=int, help="the command of this number, with its output")
    parser.add_argument("--names", nargs="+", choices=COMMANDS, default=[*COMMANDS])
    parser.add_argument("--seconds", type=float, default=60.0, help="after which one is cut")
    options = parser.parse_args(argv)
    for name in options.names:
        importlib.import_module(COMMANDS[name].module)
    import dml.runs.experiment  # torch, once for all
    import dml.runs.image_embeddings  # noqa: F401

    numbers: Sequence[int] = range(options.first, options.first + options.number)
    if options.only is not None:
        numbers = [options.only]
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        prepared = Path(name) / "prepared"
        prepared.mkdir()
        prepare(prepared)
        for number in numbers:
            case = make_case(options.seed, number, options.names)
            outcome = run_case(case, prepared, options.seconds)
            failed = bool(outcome.problems)
            counts.update(commands=1, failed=failed, cut=outcome.cut, ended=outcome.status == 0)
            if failed or options.only is not None:
                print(f"{number}: {', '.join(outcome.problems)}\n    {case.line}", flush=True)
                shown = outcome.text if options.only is not None else outcome.text[-300:]
                print("    " + ascii(shown).replace("\\n", "\n    "), flush=True)
    print(" ".join(f"{name}={count}" for name, count in counts.items()))
    return int(counts["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
