"""The blocks of docs/python.md are one program that runs as it is written."""

import re
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"


def python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)


@pytest.fixture
def workplace(stored_runs, tmp_path, monkeypatch):
    """The current folder, with a finished run and six photos."""
    monkeypatch.chdir(tmp_path)
    name = "outputs/single/digits-traditional-mfcwms-plain-small_cnn/seed0-12345678"
    shutil.copytree(stored_runs / "finished", tmp_path / name)
    (tmp_path / "photos").mkdir()
    for number in range(6):
        image = Image.effect_noise((8, 8), 20 * number + 10)
        image.save(tmp_path / "photos" / f"{number}.png")
    return tmp_path


def test_the_page(workplace, capsys):
    names: dict[str, object] = {}
    blocks = python_blocks()
    assert len(blocks) == 5
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert torch.allclose(names["embeddings"].norm(dim=1), torch.ones(6))
    assert torch.isfinite(names["loss"])
    out = capsys.readouterr().out
    assert re.search(
        r"^repeat 0, fold 0: 8 dimensions\nMAP@R \d+\.\d, Recall@1 \d+\.\d$", out, re.M
    )
    assert (workplace / "digits-net" / "model.safetensors").is_file()
