"""The picture of neighbors holds no drawing whose license forbids it."""

import csv
from pathlib import Path

import numpy as np
from PIL import Image

from dml.data.emoji import COLUMNS
from scripts.studies.emoji import neighbors as emoji_neighbors
from scripts.studies.emoji.sets import PICTURE_SETS, SETS

CLASSES = 8


def make_emoji(root: Path) -> int:
    """Makes a small dataset with a drawing of every set in every class; returns their number."""
    rng = np.random.default_rng(0)
    rows = []
    for label in range(CLASSES):
        for one in SETS:
            path = root / "emoji" / "images" / f"1f60{label}" / f"{one.name}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = rng.integers(0, 255, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(path)
            role = "train" if label < CLASSES // 2 else "test"
            rows.append((label, role, f"1f60{label}", "face", "people", one.name, "face", "0"))
    with (root / "emoji" / "drawings.csv").open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    return len(rows)


def test_only_permitted_drawings_are_shown(tmp_path, run_tiny, monkeypatch):
    images = make_emoji(tmp_path)
    _, folder = run_tiny(
        *("data=emoji", f"data.root={tmp_path}", "data.reader.fingerprint=null"),
        *(f"data.reader.images={images}", f"data.reader.classes={CLASSES}"),
        *("transform.size=16", "data.batch_size=8", "protocol=traditional"),
    )
    shown = []
    draw = emoji_neighbors.draw_neighbors
    monkeypatch.setattr(
        emoji_neighbors, "draw_neighbors", lambda *args: (shown.append(args[0]), draw(*args))
    )
    emoji_neighbors.draw_emoji_neighbors(folder, tmp_path / "neighbors.png")
    assert (tmp_path / "neighbors.png").read_bytes().startswith(b"\x89PNG")
    (split,) = shown
    names = {split.query.index.images[row].stem for row in split.query.rows}
    assert names == {one.name for one in PICTURE_SETS}
    assert len(split.query) == len(PICTURE_SETS) * CLASSES // 2
    assert all(one.credit in emoji_neighbors.CREDIT for one in PICTURE_SETS)
