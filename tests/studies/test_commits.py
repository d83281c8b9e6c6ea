"""Commits that the rows of a comparison name."""

import subprocess

import pytest

from dml.core.errors import UserError
from studies.comparison.commits import committed_at, find_code_commit


@pytest.fixture
def clone(tmp_path):
    """A repository of which the second commit changes results alone."""
    run_git(tmp_path, "init", "-q")
    commit(tmp_path, "studies/declaration.yaml", "docs/results/scores.csv")
    commit(tmp_path, "docs/results/scores.csv")
    return tmp_path


def run_git(folder, *words):
    identity = ("-c", "user.name=A", "-c", "user.email=a@b.c")
    command = ["git", "-C", folder, *identity, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def commit(folder, *files):
    for name in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write("a line\n")
    run_git(folder, "add", ".")
    run_git(folder, "commit", "-q", "-m", "a commit")


def revision_of(folder, name="HEAD"):
    return run_git(folder, "rev-parse", "--short=12", name)


def test_the_commit_of_the_code_is_not_that_of_results(clone):
    with_code = revision_of(clone, "HEAD~1")
    assert find_code_commit(revision_of(clone), clone) == with_code
    assert find_code_commit(with_code, clone) == with_code
    commit(clone, "docs/results/scores.csv", "dml/losses.py")
    assert find_code_commit(revision_of(clone), clone) == revision_of(clone)


@pytest.mark.parametrize("revision", [None, "version 0.1.0", "0123456789ab", "HEAD+"])
def test_a_revision_that_git_does_not_know_stays(clone, revision):
    assert find_code_commit(revision, clone) == revision


def test_a_declaration_is_committed_before_the_first_training(clone):
    declaration, code = clone / "studies" / "declaration.yaml", clone / "dml"
    assert revision_of(clone, "HEAD~1").startswith(committed_at(declaration, code))
    code.mkdir()
    (code / "losses.py").write_text("")
    with pytest.raises(UserError, match=r"has changes that are not committed; a study is declared"):
        committed_at(declaration, code)
    with pytest.raises(UserError, match="not committed"):
        committed_at(clone / "studies" / "other.yaml")


def test_a_copy_without_history_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(UserError, match="has no history of git"):
        committed_at(tmp_path / "declaration.yaml")
