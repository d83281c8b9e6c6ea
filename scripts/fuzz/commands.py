"""All commands, in forms that work in the folder of `scripts.fuzz.place`, and their odd values.

A form is a line of words. `run:input` is a word, `data=digits:choice` and `--out=x:output` are
options with their values; the kind after the colon says by which values they may be replaced. A
word without a kind stays. `more` has what may be added: flags, and options without a value.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """Values of an option.

    Attributes:
        wrong: no command takes them.
        odd: some commands take them.
    """

    wrong: tuple[str, ...]
    odd: tuple[str, ...] = ()


MISSING = ("", "missing", "ünï 文.npz", "\udce4", "a\nb")
UNREADABLE = ("empty", "binary", "pipe", "/dev/zero", "folder/mine.txt")
PLACES = (
    "folder",
    ".",
    "..",
    "a/../b",
    "~",
    "-",
    "run",
    "run/",
    "photos.npz/x",
    "\x1b]0;t\x07",
    "x" * 300,
)
FILES = ("emb.npz", "photos/0.png", "list.csv", "../outside.txt")
NO_NUMBERS = ("nan", "inf", "-inf", "1e400", "abc")
NUMBERS = ("0", str(2**63), "1e-400", "\u0661", "0x10", "1_0", "true")
TEXTS = ("nope", "\x1b[31m", "\u202e", "{", "[", "${x}", "'", "a=b=c", "=1", "é" * 9, "??")

KINDS = {
    "input": Kind(wrong=MISSING + UNREADABLE, odd=(*PLACES, "emb.npz", "list.csv")),
    "output": Kind(
        wrong=("",), odd=MISSING[1:] + UNREADABLE + PLACES + ("out/", "/proc/x") + FILES
    ),
    "count": Kind(wrong=(*NO_NUMBERS, "", "1.5", "-1", "0"), odd=NUMBERS[1:]),
    "whole": Kind(wrong=(*NO_NUMBERS, "", "1.5"), odd=("-1", str(2**64))),
    # Numbers of processes and of models: a large one would start them.
    "few": Kind(wrong=(*NO_NUMBERS, "", "1.5", "-1")),
    "number": Kind(wrong=(*NO_NUMBERS, "1,2", "[1]"), odd=(*NUMBERS, "-1")),
    "choice": Kind(wrong=(*TEXTS, "0", "missing"), odd=("",)),
    "text": Kind(wrong=(), odd=(*TEXTS, "", "x" * 300)),
}
JUNK = ("=1", "x=1", "~data", "+nope=1", "''", "--nope", "-Z", "{", "[1", "\udcff", "a b")


@dataclass(frozen=True)
class Command:
    """A command in a form that works.

    Attributes:
        call: `dml <command>`, or `<module>:<function>` of a script.
        form: its words; see the top of this file.
        more: what it also takes.
        changes: files and folders that are its own.
        needs_all: every word of the form.
        fails: no form of it can work here.
        share: how often it is tried.
    """

    call: str
    form: str = ""
    more: str = ""
    changes: tuple[str, ...] = ()
    needs_all: bool = False
    fails: bool = False
    share: int = 2


TRAIN = "dml train"
EVALUATE = "dml evaluate"
RUNS = "dml runs"
PREPARE = "dml prepare"
SHORT = "device=cpu:choice protocol.epochs=1:count max_minutes=0.1:number outputs=out:output"
OF_TRAINING = """
    protocol.repeats=:count protocol.evaluate_every=:count protocol.steps_per_epoch=:count
    optim.lr=:number optim.weight_decay=:number data.label_noise=:number loss.alpha=:number
    loss=:choice method=:choice protocol=:choice backbone=:choice tracking=:choice search=:choice
    precision=:choice experiment=:choice debug=:choice data.sampler=:choice optim=:choice
    data.background=:choice data.crop=:choice seed=:whole data.workers=:few protocol.workers=:few
    params=:input resume=:input backbone.weights=:input
    name=:text note=:text tracking._target_=:text loss._target_=:text
"""
OF_EVALUATION = """
    evaluation.backend=:choice save=:choice data=:choice data.eval_batch_size=:count
    evaluation.measures=:text
"""
OF_NETWORK = "--fold=:few --repeat=:few --trust"

COMMANDS = {
    "train": Command(
        TRAIN,
        f"data=digits:choice {SHORT} embedder.size=8:count backbone.width=4:count "
        "data.batch_size=32:count data.eval_batch_size=1000:count",
        OF_TRAINING,
        changes=("run",),
        share=6,
    ),
    "train on photos": Command(
        TRAIN,
        f"data=folder data.root=photos:input {SHORT} backbone=small_cnn data.batch_size=4:count "
        "embedder.size=8:count",
        OF_TRAINING,
        changes=("run",),
    ),
    "train on features": Command(
        TRAIN,
        f"data=features data.root=emb.npz:input {SHORT} data.batch_size=4:count",
        OF_TRAINING,
        changes=("run",),
    ),
    "sweep": Command(TRAIN, f"-m data=digits loss=ms,nope:text {SHORT}", OF_TRAINING, fails=True),
    "resume": Command(
        TRAIN, "resume=run:input", "device=:choice seed=:whole loss=:choice", changes=("run",)
    ),
    "evaluate a run": Command(
        EVALUATE, "run=run:input device=cpu:choice", OF_EVALUATION, changes=("run",)
    ),
    "evaluate a file": Command(
        EVALUATE,
        "embeddings=emb.npz:input device=cpu:choice",
        OF_EVALUATION,
        changes=("emb.evaluation.json",),
    ),
    "embed": Command(
        "dml embed",
        "run:input photos:input new.npz:output",
        f"{OF_NETWORK} --batch-size=:count --views=:few --features --float16",
        needs_all=True,
        share=3,
    ),
    "search": Command(
        "dml search",
        "emb.npz:input 0:input -k=2:count",
        "--picture=:output --index --csv --trust --classify --max-distance=0.5:text",
        needs_all=True,
        share=3,
    ),
    "export": Command("dml export", "run:input net:output", OF_NETWORK, needs_all=True),
    "report": Command(
        "dml report",
        "single:choice --runs=outputs:input --out=out:output",
        "--results=:input --no-figures",
    ),
    "runs": Command(RUNS, "--runs=outputs:input", "--json"),
    "runs list": Command(RUNS, "loss=ms:text --runs=outputs:input", "--json"),
    "runs best": Command(RUNS, "best loss=ms:text --runs=outputs:input", "--json"),
    "runs compare": Command(
        RUNS,
        "compare run:input run:input --runs=outputs:input",
        "--no-queries --metrics=recall_at_2:text",
        changes=("run",),  # embeddings of its test images are kept there
        needs_all=True,
    ),
    "runs rm": Command(RUNS, "rm run:input --runs=outputs:input", "--yes", changes=("run",)),
    "runs clean": Command(
        RUNS, "clean loss=ms:text --runs=outputs:input", "--yes", changes=("outputs", "run")
    ),
    "prepare": Command(PREPARE, "digits:choice", "--root=:output --check", needs_all=True),
    "prepare photos": Command(PREPARE, "folder --root=photos:input", "--check --archive=:input"),
    "prepare cub": Command(PREPARE, "cub --root=data:output --archive=missing:input", fails=True),
    "prepare emoji": Command(PREPARE, "emoji --root=data:output", "--archive=:input", fails=True),
    "plan": Command(
        "dml plan",
        "mft_table2:choice --runs=outputs:output",
        "protocol.epochs=:count protocol.repeats=:count data.batch_size=:count optim.lr=:number "
        "device=:choice data=:choice loss=:choice",
        needs_all=True,
        share=3,
    ),
    # with a word that it refuses: it would take a minute
    "check": Command(
        "dml check", "device=cpu:choice outputs=out:output", needs_all=True, fails=True, share=1
    ),
    # with a command that it refuses: its processes would take a minute
    "torchrun": Command("dml torchrun", "report:choice", fails=True, share=1),
    "rehearse": Command(
        "scripts.rehearse:main", "mft_table2 nope:choice --outputs=out:output", fails=True
    ),
    "compare": Command(
        "studies.compare:main",
        "heads_emoji:choice missing:input --outputs=out:output --pages=pages:output",
        "--arms=:choice --minutes=:count",
        fails=True,
    ),
    "simulate": Command(
        "studies.simulate:main",
        "heads_emoji:choice --tables=missing:input",
        "--comparisons=:few",
        fails=True,
    ),
    "check_loss": Command(
        "studies.check_loss:main",
        "emb.npz:input loss=nope:text --outputs=out:output",
        "--name=:text --quick",
        fails=True,
    ),
    "first_row": Command("scripts.first_row:main", "nope=1:text", needs_all=True, fails=True),
    "check_fidelity": Command("scripts.check_fidelity:main", "missing:input", fails=True),
    "show_field": Command(
        "studies.show_field:main",
        "--out=field.png:output",
        "--alpha=:number --delta=:number --seed=:whole",
        share=3,
    ),
    "show_proxies": Command(
        "studies.show_proxies:main",
        "digits:choice --stages=1:few --classes=3:count --out=out:output",
        "--root=:output embedder.size=:count data.batch_size=:count --samples",
        needs_all=True,
    ),
    "draw_emoji": Command(
        "studies.draw_emoji:main", "run:input --out=emoji.png:output", fails=True
    ),
    "draw_concepts": Command("studies.draw_concepts:main", "folds:choice --out=out:output"),
    "make_docs": Command("scripts.make_docs:main", "--check"),
    "benchmark": Command("scripts.benchmark:main", "losses:choice --nope=:text", fails=True),
    "benchmark losses": Command(
        "scripts.benchmark:main",
        "losses --cases=mfcwms-100:choice --rounds=1:count --device=cpu:choice",
    ),
    "benchmark metrix": Command(
        "scripts.benchmark:main",
        "metrix --classes=4:count --rounds=1:count --device=cpu:choice",
        "--pooling=:choice",
    ),
}
