"""Commands and Python blocks of docs/guides run as they are written, in a small form.

Commands below a comment such as `<!-- needs data -->`, and those of docs/concepts, are composed and
checked, not run.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from dml.cli import program
from dml.config.check import check
from dml.config.presets import apply_params, split_params
from tests.conftest import TINY, compose_config, run_config, without_pictures

ROOT = Path(__file__).resolve().parents[2]
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
CODE = [ROOT / f"docs/{name}.md" for name in ("losses_in_your_code", "networks", "own_code")]
CONCEPTS = sorted((ROOT / "docs" / "concepts").glob("*.md"))
RUN = "outputs/single/digits-traditional-mfcwms-plain-small_cnn/seed0-12345678"
BLOCK = re.compile(r"(?:<!-- (needs [^>]*|slow) -->\n)?```(sh|python)\n(.*?)```", re.S)
FILE = re.compile(r"^`(my_\S+)`:\n\n```\w+\n(.*?)```", re.M | re.S)
# Installation and services.
SETUP = ("git", "cd", "make", "source", "pip", "wandb", "mlflow", "tensorboard", "uvicorn", "curl")
SEPARATE = ("check", "plan")  # has tests of its own


def blocks(page: Path) -> Iterator[tuple[str, str, str]]:
    """Yields the blocks of a guide as (reason not to run it or "", language, code)."""
    text = page.read_text(encoding="utf-8")
    files = {code for _, code in FILE.findall(text)}
    for reason, language, code in BLOCK.findall(text):
        if code not in files:
            yield reason, language, code


def commands(code: str) -> Iterator[list[str]]:
    """Yields the words of each line after `dml`; those of set-up commands are left out."""
    for line in code.replace("\\\n", " ").splitlines():
        words = shlex.split(line.replace("<run folder>", RUN))
        if "train.py" in words:
            words = ["dml", "train", *words[words.index("train.py") + 1 :]]
        if words[:2] == ["dml", "torchrun"]:
            options = [word for word in words if word.startswith("--")]
            words = ["dml", *words[2 + len(options) :]]
        if words[0] in SETUP:
            continue
        if words[0] == "python":
            module = words[2].replace(".", "/") + ".py" if words[1] == "-m" else words[1]
            assert (ROOT / module).is_file(), line  # a script, which has tests of its own
            continue
        assert words[0] == "dml", line
        yield words[1:]


def smaller(words: list[str]) -> list[str]:
    """Returns the words of a `train.py` command with options that make it tiny."""
    grids = [word for word in words if "," in word and "[" not in word]
    words = [_first_value(word) if word in grids[1:] else word for word in words]
    chosen = {word.partition("=")[0].lstrip("+") for word in words}
    if chosen & {"resume", "--help"}:
        return words
    small = [word for word in TINY if word.partition("=")[0] not in chosen]
    changed = [word.replace("protocol.epochs=2", "protocol.epochs=1") for word in (*small, *words)]
    return [word for word in changed if _has_width(words) or "backbone.width" not in word]


def _has_width(words: list[str]) -> bool:
    others = ("backbone=custom", "backbone=timm", "data=features")
    return not any(word.startswith(others) for word in words)


@pytest.fixture
def workplace(stored_run, tmp_path, monkeypatch, own_modules):
    """The current folder, with a finished run, photos and the files that a guide shows."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(stored_run, tmp_path / RUN)
    for number in range(96):
        path = tmp_path / "photos" / f"kind{number // 12}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.effect_noise((20, 20), number + 10).save(path)
    return tmp_path


@pytest.fixture(scope="session")
def stored_run(tmp_path_factory) -> Path:
    """A finished run on digits."""
    cfg = compose_config(f"outputs={tmp_path_factory.mktemp('run')}", *TINY, "protocol.epochs=1")
    with without_pictures():
        return run_config(cfg)[1]


@pytest.mark.parametrize("page", [*GUIDES, *CODE], ids=lambda page: page.stem)
def test_a_guide_runs_as_written(page, workplace, monkeypatch, capsys):
    for name, content in FILE.findall(page.read_text(encoding="utf-8")):
        assert len([line for line in content.splitlines() if line.strip()]) <= 15, name
        (workplace / name).parent.mkdir(parents=True, exist_ok=True)
        (workplace / name).write_text(content)
    names: dict[str, object] = {}
    for reason, language, code in blocks(page):
        if reason:
            continue
        if language == "python":
            exec(compile(code, str(page), "exec"), names)
            continue
        for words in commands(code):
            if words[0] in SEPARATE:
                continue
            more = smaller(words[1:]) if words[0] == "train" else words[1:]
            monkeypatch.setattr("sys.argv", ["dml", words[0], *more])
            try:
                status = program.main()
            except SystemExit as end:
                status = end.code
            assert not status, f"{words}: {capsys.readouterr().err}"


def composed_commands() -> Iterator[tuple[str, list[str]]]:
    """Yields the commands that are not run, each with the first value of a grid."""
    for page in (*GUIDES, *CODE, *CONCEPTS):
        for reason, language, code in blocks(page):
            if language != "sh" or not (reason or page in CONCEPTS):
                continue
            for words in commands(code):
                if words[0] == "train" and "experiment=" not in " ".join(words):
                    options = [word for word in words[1:] if "=" in word and word[:5] != "hydra"]
                    yield page.stem, [_first_value(word) for word in options]
                else:
                    assert words[0] in program.COMMANDS, words


def _first_value(word: str) -> str:
    return word if "[" in word or "{" in word else word.partition(",")[0]


@pytest.mark.parametrize(("page", "words"), list(composed_commands()))
def test_commands_that_need_something_are_valid(page, words, composed):
    params, others = split_params(words)
    check(apply_params(composed(*others), params, others))


def test_the_examples_of_contributing():
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.S):
        exec(compile(block, "CONTRIBUTING.md", "exec"), names)
    names["test_mfcont_is_eq_8"]()
    distance = names["mean_distance"](torch.eye(3), torch.tensor([0, 0, 1]))
    assert distance == pytest.approx(2**0.5)


@pytest.mark.parametrize(
    "error", re.findall(r"^error: (.*)$", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.M)
)
def test_the_messages_of_contributing(error, command_line):
    words = {"data.batch_size": "data.batch_size=0", "loss": "loss=mfcwm"}
    status, _, err = command_line(words[error.partition(":")[0]])
    assert (status, err) == (2, f"error: {error}\n")
