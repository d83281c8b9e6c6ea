"""The table of docs/fidelity.md: each repository of authors beside ours, on the same inputs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import yaml  # type: ignore[import-untyped]

from dml.core.plain_text import print_plain
from scripts.docs.markdown import replace_section, table
from scripts.fidelity.exchange import Arrays
from scripts.fidelity.inputs import make_inputs
from scripts.fidelity.ours import compute_ours

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
PAGE = ROOT / "docs/fidelity.md"
HEAD = ("their code (revision)", "what was compared", "largest difference", "allowed")


def compare_all(repositories: Path | None) -> int:
    """Compares with every repository that is there, and writes the table.

    Args:
        repositories: folder of their clones; None only prints how to get them.

    Returns:
        The exit status: 0, or 1 if a difference is too large or the folder has no clone.
    """
    root = repositories or Path("authors")
    rows, fits, ran = [], True, False
    for comparison in yaml.safe_load((FOLDER / "comparisons.yaml").read_text(encoding="utf-8")):
        outputs = None
        folder = root / Path(comparison["name"]).name
        if repositories and _is_complete(comparison, root, folder):
            ran = True
            outputs = compare(comparison, root.resolve(), folder.resolve())
        else:
            _explain(comparison, root, folder)
        for row, row_fits in _make_rows(comparison, outputs):
            fits &= row_fits
            rows.append(row)
            print(*row, sep=" | ")
    if repositories and not ran:
        print_plain(f"error: {root} has no clone of these repositories; the page stays as it is")
        return 1
    if repositories:
        ours = git(ROOT, "describe", "--always", "--dirty", "--exclude=*")
        heading = f"Ours is revision {ours}, {datetime.now(UTC):%Y-%m-%d}.\n\n"
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(replace_section(text, "comparisons", heading + table(HEAD, rows)))
    return 0 if fits else 1


def _make_rows(
    comparison: Mapping[str, Any], outputs: tuple[Arrays, Arrays] | None
) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Yields each row of a comparison, and whether its difference is allowed.

    Args:
        comparison: an entry of comparisons.yaml.
        outputs: ours and theirs; None where it was not run.
    """
    name = f"{comparison['name']} {comparison['revision'][:7]}"
    for row, (compared, allowed) in comparison["rows"].items():
        difference, shown = 0.0, "not run"
        if outputs is not None:
            difference = largest_difference(row, *outputs)
            shown = f"{difference:.1g}"
        yield (name, compared, shown, f"{allowed:.1g}"), difference <= allowed


def _is_complete(comparison: Mapping[str, Any], root: Path, folder: Path) -> bool:
    """Returns whether the clone has the right revision, and its packages are there."""
    needed = [root / comparison.get(key, "") for key in ("python", "packages")]
    has_revision = git(folder, "rev-parse", "HEAD") == comparison["revision"]
    return has_revision and all(path.exists() for path in needed)


def _explain(comparison: Mapping[str, Any], root: Path, folder: Path) -> None:
    """Prints the commands that get a repository and its packages."""
    print_plain(f"# {comparison['name']} is not in {root}, with its packages; to get it:")
    print_plain(f"git clone https://github.com/{comparison['name']} {folder}")
    print_plain(f"git -C {folder} checkout {comparison['revision']}")
    for line in comparison.get("commands", ()):
        print_plain(line.format(root=root))


def compare(comparison: dict[str, Any], root: Path, folder: Path) -> tuple[Arrays, Arrays]:
    """Returns our outputs and theirs."""
    inputs = make_inputs(comparison.get("batches"))
    paths = [folder / comparison.get("path", ""), FOLDER, root / comparison.get("packages", "")]
    script = FOLDER / f"theirs/{comparison['script']}.py"
    with tempfile.TemporaryDirectory() as scratch:
        files = [Path(scratch) / name for name in ("inputs.npz", "outputs.npz")]
        inputs["comparison"] = np.array(json.dumps(comparison))
        np.savez(files[0], **inputs)  # type: ignore[arg-type]
        command = [root / comparison.get("python", sys.executable), script, *files]
        path = os.pathsep.join(map(str, paths))
        subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=True)
        with np.load(files[1]) as outputs:
            return compute_ours(comparison, inputs), dict(outputs)


def largest_difference(row: str, ours: Arrays, theirs: Arrays) -> float:
    """Returns the largest difference in a row, relative to the largest entry of its array.

    Infinite for different arrays.
    """
    differences = []
    for key in (key for key in theirs if key.startswith(f"{row}/")):
        a, b = (side[key].astype(float) for side in (ours, theirs))
        b = b.T if a.shape == b.T.shape != b.shape else b  # their columns are our rows
        if a.shape != b.shape or not np.isfinite(a - b).all():
            return np.inf
        differences.append(np.abs(a - b).max() / max(np.abs(b).max(), 1e-9))
    return float(max(differences, default=np.inf))


def git(folder: Path, *words: str) -> str:
    """Returns what git prints in a folder; empty where it fails."""
    command = ["git", "-C", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
