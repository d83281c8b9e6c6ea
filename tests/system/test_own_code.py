"""The examples of docs/own_code.md run as they are written."""

import re
import shlex
from pathlib import Path

import pytest

from tests.conftest import TINY

DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "own_code.md").read_text("utf-8")
COMMANDS = [
    shlex.split(block.replace("\\\n", " "))[2:]
    for block in re.findall(r"```\n(python train\.py .*?)```", DOCUMENT, re.S)
]


@pytest.fixture
def own_folder(tmp_path, monkeypatch, own_modules):
    """A folder with every file that the document shows."""
    files = re.findall(r"^`(\S+)`:\n\n```\w+\n(.*?)```", DOCUMENT, re.M | re.S)
    assert len(files) == 4
    for name, content in files:
        assert len([line for line in content.splitlines() if line.strip()]) <= 15, name
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("number", "title", "folder"),
    [
        (0, "digits: ms + Noisy (traditional)", "digits-traditional-ms-Noisy-small_cnn"),
        (1, "stripes: mfcwms (validation)", "stripes-validation-mfcwms-plain-small_cnn"),
        (2, "stripes: ms + Noisy (validation)", "stripes-validation-ms-Noisy-small_cnn"),
    ],
)
def test_examples(own_folder, command_line, number, title, folder):
    status, out, err = command_line(*TINY, *COMMANDS[number], "protocol.epochs=1")
    assert status == 0, err
    assert title in out
    assert (own_folder / "outputs" / "single" / folder).is_dir()
