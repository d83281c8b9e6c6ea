"""What is tracked by git stays small, so that a clone takes seconds."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MB = 1_000_000
PICTURE = "from studies.pictures import shrink; shrink('<file>', width=1040)"
# Kind of files → beginnings and ends of their names, bytes at most, and what to do above it.
LIMITS = {
    "pictures": (
        ("",),
        (".png", ".jpg", ".jpeg", ".gif", ".webp", ".svg", ".pdf"),
        0.5 * MB,
        f'draw them with studies.pictures.save_small, or: python -c "{PICTURE}"',
    ),
    "tables of results": (
        ("docs/",),
        (".csv", ".xz", ".json", ".parquet", ".npz"),
        1.0 * MB,
        "studies store .csv.xz (Results.write); keep columns that a page or a test reads",
    ),
    "docs/results and studies": (
        ("docs/results/", "studies/"),
        ("",),
        1.9 * MB,
        "shrink pictures and tables; data and features are made, not stored",
    ),
    "all files": (
        ("",),
        ("",),
        8.5 * MB,
        "the largest: git ls-files | xargs stat -c '%s %n' | sort -n | tail",
    ),
}


@pytest.fixture(scope="module")
def sizes():
    """Bytes of each tracked file."""
    command = ["git", "ls-files", "-z"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no repository of git")
    names = filter(None, done.stdout.split("\0"))
    return {name: (ROOT / name).lstat().st_size for name in names if (ROOT / name).exists()}


@pytest.mark.parametrize("kind", LIMITS)
def test_files_are_light(kind, sizes):
    beginnings, ends, limit, advice = LIMITS[kind]
    chosen = {
        name: size
        for name, size in sizes.items()
        if name.startswith(beginnings) and name.lower().endswith(ends)
    }
    assert chosen
    total = sum(chosen.values())
    largest = ", ".join(sorted(chosen, key=lambda name: -chosen[name])[:3])
    weight = f"{total / MB:.2f} MB, at most {limit / MB:g}"
    assert total <= limit, f"{kind}: {weight}; the largest are {largest}; {advice}"
