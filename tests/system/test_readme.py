"""Commands and code that the README shows do what it says."""

import re
import shlex
from pathlib import Path

import pytest

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")


def block(after: str, language: str) -> str:
    """Returns the first code block of a language after a piece of text."""
    rest = README[README.index(after) :]
    found = re.search(rf"```{language}\n(.*?)```", rest, re.S)
    assert found, f"no {language} block after {after!r}"
    return found[1]


@pytest.fixture
def my_losses(tmp_path, monkeypatch):
    code = block("## Your loss", "python")
    assert len([line for line in code.splitlines() if line.strip()]) < 20
    (tmp_path / "my_losses.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


SMALL = ("protocol.epochs=1", "embedder.size=8", "backbone.width=4", "device=cpu")


def test_a_loss_on_the_command_line(my_losses, command_line):
    command = block("Once, on the command line", "").replace("\\\n", " ")
    words = shlex.split(command)
    assert words[:3] == ["PYTHONPATH=.", "python", "train.py"]
    status, out, err = command_line(*words[3:], f"outputs={my_losses}", *SMALL)
    assert status == 0, err
    assert "digits-traditional-center-plain-small_cnn" in out


def test_a_loss_with_a_file_of_its_own(my_losses, command_line):
    folder = my_losses / "my_configs" / "loss"
    folder.mkdir(parents=True)
    (folder / "center.yaml").write_text(block("my_configs/loss/center.yaml", "yaml"))
    status, out, err = command_line(
        f"hydra.searchpath=[file://{my_losses}/my_configs]",
        "loss=center",
        f"outputs={my_losses}",
        *SMALL,
    )
    assert status == 0, err
    assert "digits: center (traditional)" in out


def test_mistakes_are_answered_as_shown(command_line):
    shown = block("a mistake is answered", "")
    command, *errors = shown.strip().splitlines()
    status, _, err = command_line(*shlex.split(command)[3:])
    assert status == 2
    assert err.strip().splitlines() == errors


def test_a_network_for_python_users(run_tiny):
    import torch
    from PIL import Image

    import dml

    _, folder = run_tiny()
    embedder, transform = dml.load(folder)
    embedding = embedder(transform(Image.new("L", (8, 8)))[None])
    assert embedding.shape == (1, 8)
    assert torch.allclose(embedding.norm(), torch.tensor(1.0))
