"""Commits that the rows of a comparison name: of its declaration, and of the code that trained."""

from __future__ import annotations

import subprocess
from pathlib import Path

from dml.core.errors import UserError

RESULTS = "docs/results"  # in the clone; `compare.py --commit` changes nothing else


def committed_at(path: Path, *code: Path) -> str:
    """Returns the commit in which a declaration was changed last.

    Args:
        path: of the declaration.
        code: files and folders that must be committed too.

    Raises:
        UserError: there is no repository, or one of them has changes that are not committed.
    """
    if not _ask_git(path.parent, "rev-parse", "--git-dir"):
        raise UserError(
            f"{path.parent} has no history of git: rows name the commit of their declaration, so "
            f"arms are trained in a clone"
        )
    commit = _ask_git(path.parent, "log", "-1", "--format=%h", "--", path)
    changed = _ask_git(path.parent, "status", "--porcelain", "--", path, *code)
    if not commit or changed:
        raise UserError(
            f"{path} or its code has changes that are not committed; a study is declared before "
            f"its first training"
        )
    return commit


def find_code_commit(revision: str | None, clone: Path) -> str | None:
    """Returns the last commit up to a revision that changed more than results, 12 digits.

    Commits of tables alone stay in the clone that trains: nobody else could look them up.

    Args:
        revision: of a run; returned as it is if it is unknown to git, such as None, the version of
            a package, or a commit with changes (`+`).
        clone: folder of the repository.
    """
    if revision is None:
        return None
    others = (".", f":(exclude){RESULTS}")
    words = ("log", "-1", "--abbrev=12", "--format=%h", revision, "--", *others)
    return _ask_git(clone, *words) or revision


def _ask_git(folder: Path, *words: str | Path) -> str:
    """Returns what a command of git prints; nothing where it fails."""
    command = ["git", "-C", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
