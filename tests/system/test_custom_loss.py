"""The examples of docs/losses_in_your_code.md, run as they are written."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "losses_in_your_code.md"
TEXT = PAGE.read_text(encoding="utf-8")
SMALL = ("data=digits", "protocol.epochs=1", "embedder.size=8", "backbone.width=4", "device=cpu")


def find_block(after: str, language: str) -> str:
    """Returns the first code block of a language after a piece of text."""
    start = TEXT.index(after)
    for found in re.finditer(r"^```(\w*)\n(.*?)^```$", TEXT, re.S | re.M):
        if found.start() > start and found[1] == language:
            return found[2]
    raise AssertionError(f"no {language} block after {after!r}")


def words_of(command: str) -> list[str]:
    words = shlex.split(command)
    assert words[:2] == ["python", "train.py"]
    return words[2:]


@pytest.fixture
def my_folder(tmp_path, monkeypatch, own_modules):
    """A current folder with the file of the example."""
    code = find_block("## Your loss", "python")
    assert len([line for line in code.splitlines() if line.strip()]) <= 15
    (tmp_path / "my_losses.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # as dml.cli does, and undone after the test
    return tmp_path


def test_a_loss_on_the_command_line(my_folder, command_line):
    words = words_of(find_block("CenterLoss(nn.Module)", ""))
    status, out, err = command_line(*words, *SMALL)
    assert status == 0, err
    assert "digits-traditional-CenterLoss-plain-small_cnn" in out
    assert "digits: CenterLoss (traditional)" in out
    (config,) = my_folder.glob("outputs/single/*/*/config.yaml")
    assert "scale: 32" in config.read_text()
    status, out, err = command_line(*words, *SMALL, "loss.name=center", "protocol.epochs=0")
    assert status == 0, err
    assert "digits-traditional-center-plain-small_cnn" in out


def test_a_loss_in_a_config_folder(my_folder, command_line):
    folder = my_folder / "my_configs" / "loss"
    folder.mkdir(parents=True)
    (folder / "center.yaml").write_text(find_block("`my_configs/loss/center.yaml`", "yaml"))
    words = words_of(find_block("`my_configs/loss/center.yaml`", ""))
    status, out, err = command_line(*words, *SMALL)
    assert status == 0, err
    assert "digits-traditional-CenterLoss-plain-small_cnn" in out
    (config,) = my_folder.glob("outputs/single/*/*/config.yaml")
    assert "loss_lr: 0.01" in config.read_text()


def test_a_loss_of_pml(my_folder, command_line):
    words = words_of(find_block("All others are named", ""))
    status, out, err = command_line(*words, *SMALL)
    assert status == 0, err
    assert "digits-traditional-CircleLoss-plain-small_cnn" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "loss._target_: missing"),
        (["loss._target_=my_losses.Center"], "did you mean 'CenterLoss'?"),
        (
            ["loss._target_=my_losses.CenterLoss", "+loss.scael=2"],
            "loss.scael: CenterLoss takes no such argument; did you mean 'scale'?",
        ),
        (
            ["loss._target_=my_losses.CenterLoss", "loss.scale=2"],
            "loss.scale: no such option; valid are loss.batch_kind; +loss.scale=<value> adds it",
        ),
        (
            ["loss._target_=my_losses.CenterLoss", "loss.batch_kind=proxy"],
            "loss.batch_kind: 'proxy' is not valid; one of pair | classification",
        ),
    ],
)
def test_mistakes_are_answered_in_one_line(my_folder, command_line, words, message):
    status, _, err = command_line("loss=custom", *words, *SMALL)
    assert status == 2
    assert message in err
    assert len(err.splitlines()) == 1


def test_our_losses_in_other_programs():
    scope = {}
    exec(find_block("called like those of pytorch-metric-learning", "python"), scope)
    scope["loss"].backward()
    assert scope["proxies"].mean_fields.grad.abs().sum() > 0


def test_retrieval_metrics_of_numpy_arrays():
    scope = {}
    exec(find_block("## Retrieval metrics", "python"), scope)
    assert scope["scores"]["queries"] == 100
    assert 0 < scope["scores"]["precision_at_1"] < 0.3  # 1 if queries found themselves
