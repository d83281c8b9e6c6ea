"""Completion in bash, by the function that argcomplete defines there."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# What the shell does at a tab: words of the line in variables, then the function.
SHELL = """
eval "$(register-python-argcomplete dml)"
COMP_LINE="$1"; COMP_POINT=${#1}; COMP_TYPE=9; COMP_WORDS=($1)
[[ "$1" == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_python_argcomplete dml
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("dml tr", {"train"}),
        ("dml train loss=mfc", {"mfcont", "mfcwms"}),
        ("dml train optim.loss_l", {"optim.loss_lr=", "optim.loss_lr_ratio="}),
        ("dml evaluate embeddin", {"embeddings="}),
        ("dml embed --f", {"--features", "--float16", "--fold"}),
        ("dml prepare cu", {"cub"}),
        ("dml plan mft_table2 data=cu", {"cub", "custom"}),
        ("dml report pfml_table9", {"pfml_table9"}),
    ],
)
def test_bash(line, words, tmp_path):
    bash, folder = shutil.which("bash"), Path(sys.executable).parent
    if bash is None or not (folder / "dml").is_file():
        pytest.skip("needs bash and an installed dml")
    paths = {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [bash, "-c", SHELL, "bash", line],
        cwd=tmp_path,
        env={**os.environ, **paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert {word.strip() for word in done.stdout.split("\n") if word.strip()} == words, done.stderr
