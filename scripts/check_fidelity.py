"""Compares with the authors' code on the same inputs: python scripts/check_fidelity.py authors

    python scripts/check_fidelity.py            how to get the repositories
    python scripts/check_fidelity.py authors    runs those that are there, at the pinned revisions

The table of docs/fidelity.md is written anew, with both revisions and the date. What cannot be run
is a row that says so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import environment
import numpy as np
import yaml  # type: ignore[import-untyped]

from dml.cli.error_lines import report_errors
from dml.cli.parser import make_parser
from dml.core.plain_text import print_plain
from scripts.docs.markdown import replace_section, table
from scripts.fidelity.exchange import Arrays
from scripts.fidelity.inputs import make_inputs
from scripts.fidelity.ours import compute_ours

PAGE = environment.ROOT / "docs/fidelity.md"
FOLDER = environment.ROOT / "scripts/fidelity"
HEAD = ("their code (revision)", "what was compared", "largest difference", "allowed")


@report_errors
def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0, or 1 if a difference is too large or the folder has no clone."""
    parser = make_parser(__doc__)
    parser.add_argument("repositories", nargs="?", type=Path, help="folder of their clones")
    given: Path | None = parser.parse_args(argv).repositories
    root, rows, fits, ran = given or Path("authors"), [], True, False
    for comparison in yaml.safe_load((FOLDER / "comparisons.yaml").read_text(encoding="utf-8")):
        folder = root / Path(comparison["name"]).name
        needed = [root / comparison.get(key, "") for key in ("python", "packages")]
        found_revision = git(folder, "rev-parse", "HEAD") == comparison["revision"]
        runs = given and found_revision and all(path.exists() for path in needed)
        if not runs:
            print_plain(f"# {comparison['name']} is not in {root}, with its packages; to get it:")
            print_plain(f"git clone https://github.com/{comparison['name']} {folder}")
            print_plain(f"git -C {folder} checkout {comparison['revision']}")
            for line in comparison.get("commands", ()):
                print_plain(line.format(root=root))
        ran = ran or bool(runs)
        found = compare(comparison, root.resolve(), folder.resolve()) if runs else None
        for row, (compared, allowed) in comparison["rows"].items():
            difference = largest_difference(row, *found) if found else 0.0
            fits &= difference <= allowed
            cells = [f"{difference:.1g}" if found else "not run", f"{allowed:.1g}"]
            rows.append((f"{comparison['name']} {comparison['revision'][:7]}", compared, *cells))
            print(*rows[-1], sep=" | ")
    if given and not ran:
        print_plain(f"error: {given} has no clone of these repositories; the page stays as it is")
        return 1
    if given:
        ours = git(environment.ROOT, "describe", "--always", "--dirty", "--exclude=*")
        heading = f"Ours is revision {ours}, {datetime.now(UTC):%Y-%m-%d}.\n\n"
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(replace_section(text, "comparisons", heading + table(HEAD, rows)))
    return 0 if fits else 1


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


if __name__ == "__main__":
    sys.exit(main())
