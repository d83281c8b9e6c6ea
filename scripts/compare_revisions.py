"""Compares what two revisions compute on this machine, before a change that should change nothing.

    python scripts/compare_revisions.py main            the working tree against a revision
    python scripts/compare_revisions.py main --rtol 1e-6 --only histories

Compares, with a small network on digits on one CPU thread: the history of a run of ten steps for
each loss and each method; the tables of one experiment's report; the configs of ten commands; the
public names of the packages, the commands and the options. Prints the differences; the exit status
is 1 if there are any. Takes about five minutes of CPU time for each revision.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import importlib
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from environment import ROOT

SMALL = (
    "data=digits",
    "device=cpu",
    "protocol.epochs=2",
    "protocol.steps_per_epoch=5",
    "embedder.size=8",
    "backbone.width=4",
    "data.eval_batch_size=1000",
)
METHODS = {
    "metrix": "contrastive,ms,proxy_anchor,proxy_nca_pp",
    "imix": "contrastive,ms",
    "mochi": "contrastive,ms",
    "proxy_synthesis": "proxy_anchor,proxy_nca_pp",
    "ccp": "c1,c2,ms,triplet",
    "xbm": "contrastive",
}
REPORT = ("experiment=mft_table15", "scale=standin", "~search", "protocol.epochs=1")
COMMANDS = (
    "loss=mfcwms data=cub",
    "loss=contrastive data=cars backbone=resnet50",
    "loss=ms protocol=mlrc data=cub search=bayes",
    "loss=contrastive protocol=mlrc data=sop params=mlrc",
    "loss=pfml protocol=pfml data=cub",
    "loss=c2 method=ccp protocol=conventional data=inshop",
    "loss=proxy_anchor method=metrix protocol=metrix data=sop backbone=resnet50",
    "loss=mfcwms data=inshop backbone=vit_b16",
    "loss=triplet protocol=mlrc_ccp data=cars",
    "backbone=timm backbone.model=resnet18 data=glyphs",
)
PACKAGES = ("dml", *(f"dml.{name}" for name in ("losses", "losses.generic", "methods", "retrieval",
            "retrieval.geometry", "models", "data", "training", "tracking", "runs")))  # fmt: skip
CLOCKS = re.compile(r"\d+:\d\d(:\d\d)?|[\d.]+ (s|images/s|min|h)\b")  # differ from run to run


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 if nothing differs, else 1."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", help="revision to compare with")
    parser.add_argument("--rtol", type=float, default=0.0, help="of histories (default: exact)")
    parser.add_argument("--only", choices=PROBES, nargs="+", default=[*PROBES])
    parser.add_argument("--probe", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.probe:
        found = {name: dict(PROBES[name]()) for name in options.only}
        options.probe.write_text(json.dumps(found))
        return 0
    with _worktree(options.base) as tree:
        base, head = (_probe(root, options.only) for root in (tree, ROOT))
    differences = list(_compare(base, head, options.rtol))
    compared = ", ".join(f"{len(head[name])} {name}" for name in options.only)
    print(*differences, f"{compared}: {len(differences)} differences", sep="\n")
    return int(bool(differences))


@contextlib.contextmanager
def _worktree(revision: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "base"
        git = ("git", "-C", str(ROOT), "worktree")
        subprocess.run([*git, "add", "--quiet", "--detach", tree, revision], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", tree], check=True)


def _probe(tree: Path, names: list[str]) -> dict[str, dict[str, Any]]:
    """Returns what the code in a folder computes: kind → name → value."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        words = [__file__, "-", "--probe", str(result), "--only", *names]
        environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
        subprocess.run([sys.executable, *words], cwd=tree, env=environment, check=True)
        found: dict[str, dict[str, Any]] = json.loads(result.read_text())
    return found


def _compare(base: dict[str, Any], head: dict[str, Any], rtol: float) -> Iterator[str]:
    for kind in head:
        for name in sorted(base[kind].keys() | head[kind].keys()):
            if name not in head[kind] or name not in base[kind]:
                yield f"{kind}: {name} {'added' if name in head[kind] else 'removed'}"
                continue
            old, new = base[kind][name], head[kind][name]
            if kind == "histories":
                yield from (f"history of {name}: {line}" for line in _compare_rows(old, new, rtol))
            elif isinstance(new, dict):
                for key in sorted(old.keys() | new.keys()):
                    if old.get(key) != new.get(key):
                        yield f"{kind}: {name}: {key}: {old.get(key)!r} → {new.get(key)!r}"
            elif old != new:
                yield f"{kind}: {name}:\n{old}\n→\n{new}"


def _compare_rows(old: list[dict], new: list[dict], rtol: float) -> Iterator[str]:
    if len(old) != len(new):
        yield f"{len(old)} → {len(new)} rows"
        return
    columns: set[str] = {column for row in (*old, *new) for column in row}
    for column in sorted(columns):
        pairs = [
            (one.get(column), two.get(column))
            for one, two in zip(old, new, strict=True)
            if not _is_close(one.get(column), two.get(column), rtol)
        ]
        if pairs:
            yield f"{column}: {pairs[0][0]} → {pairs[0][1]} ({len(pairs)} of {len(new)} rows)"


def _is_close(old: str | None, new: str | None, rtol: float) -> bool:
    if old == new or None in (old, new):
        return old == new
    try:
        return math.isclose(float(old or "nan"), float(new or "nan"), rel_tol=rtol)
    except ValueError:
        return False


def _histories() -> Iterator[tuple[str, list[dict]]]:
    """Yields the rows of history.csv of a short run for each loss and each method."""
    losses = [path.stem for path in Path("configs/loss").glob("*.yaml") if path.stem != "custom"]
    with tempfile.TemporaryDirectory() as outputs:
        _train("-m", *SMALL, f"loss={','.join(sorted(losses))}", f"outputs={outputs}")
        for method, names in METHODS.items():
            _train("-m", *SMALL, f"method={method}", f"loss={names}", f"outputs={outputs}")
        for path in sorted(Path(outputs).rglob("history.csv")):
            with path.open(encoding="utf-8") as rows:
                yield path.parent.parent.name, list(csv.DictReader(rows))


def _report() -> Iterator[tuple[str, str]]:
    """Yields the printed report of one experiment, without times and paths."""
    with tempfile.TemporaryDirectory() as outputs:
        _train(*REPORT, f"outputs={outputs}")
        words = ["scripts/report.py", "mft_table15", "--runs", outputs, "--no-figures"]
        text = _run(*words, check=True).replace(outputs, "<outputs>")
    yield "mft_table15", CLOCKS.sub("<time>", text)


def _configs() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the composed options of each command."""
    import yaml  # type: ignore[import-untyped]

    for words in COMMANDS:
        text = _run("train.py", *words.split(), "--cfg", "job", check=True)
        yield words, dict(_flatten(yaml.safe_load(text) or {}))


def _interface() -> Iterator[tuple[str, list[str]]]:
    """Yields the public names of each package, the commands, and the options."""
    sys.path.insert(0, os.getcwd())  # before this clone's own folder
    for package in PACKAGES:
        module = importlib.import_module(package)
        names = getattr(module, "__all__", [name for name in vars(module) if name[0] != "_"])
        yield package, sorted(names)
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    yield "commands", sorted([*project["scripts"], *map(str, Path("scripts").glob("*.py"))])
    yield "options", sorted(dict(next(_configs())[1]))


PROBES = {
    "histories": _histories,
    "reports": _report,
    "configs": _configs,
    "interface": _interface,
}


def _flatten(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        if isinstance(value, dict) and value:
            yield from _flatten(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def _train(*words: str) -> None:
    _run("train.py", *words)


def _run(*words: str, check: bool = False) -> str:
    """Runs a command of the current folder; a run that fails is seen in what is compared."""
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=check, stdin=None
    )
    if done.returncode:
        print(done.stderr, file=sys.stderr)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
