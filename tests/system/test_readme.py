"""Commands and code that the README shows do what it says."""

import re
import shlex
from pathlib import Path

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")


def block(after: str, language: str) -> str:
    """Returns the first code block of a language after a piece of text."""
    rest = README[README.index(after) :]
    found = re.search(rf"```{language}\n(.*?)```", rest, re.S)
    assert found, f"no {language} block after {after!r}"
    return found[1]


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
