"""The features of heads_emoji are made by one command."""

import shutil
import subprocess
from pathlib import Path

import pytest

from studies.comparison.check import DECLARATION
from studies.comparison.declaration import read_declaration
from studies.emoji.drawings import RESVG

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_features_embeds_as_the_declaration_says(tmp_path):
    options = ["--dry-run", "--always-make", f"VENV={tmp_path}", "features.npz"]
    done = subprocess.run(["make", *options], cwd=ROOT, capture_output=True, text=True, check=True)
    command = " ".join(done.stdout.replace("\\\n", " ").split())
    assert " ".join(read_declaration(DECLARATION).features.split()) in command


def test_the_renderer_is_the_same_everywhere():
    assert f"resvg-py=={RESVG}" in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
