"""The features of the reality check are made by one command."""

import shutil
import subprocess
from pathlib import Path

import pytest

from studies.emoji.drawings import RESVG
from studies.reality_check import check
from studies.reality_check.declaration import read_declaration

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_features_embeds_as_the_declaration_says(tmp_path):
    options = ["--dry-run", "--always-make", f"VENV={tmp_path}", "features.npz"]
    done = subprocess.run(["make", *options], cwd=ROOT, capture_output=True, text=True, check=True)
    command = " ".join(done.stdout.replace("\\\n", " ").split())
    for study in ("reality_check", "reality_check_mlp"):
        declared = read_declaration(check.DECLARATION.parents[1] / study / "declaration.yaml")
        assert " ".join(declared.features.split()) in command


def test_the_renderer_is_the_same_everywhere():
    assert f"resvg-py=={RESVG}" in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
