import weakref

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from dml.data.image_index import ImageIndex
from dml.data.protocol import Split
from dml.runs.embeddings import SplitEmbeddings
from dml.runs.figures import run_figures
from dml.runs.figures.run_figures import draw_neighbors, learning_curve

GREEN, RED = (46, 139, 87), (187, 51, 51)


def count(path, color):
    pixels = np.asarray(Image.open(path).convert("RGB")).astype(int)
    return int((np.abs(pixels - color).max(axis=2) < 12).sum())


def test_frames_tell_right_from_wrong(tmp_path):
    labels = np.array([0, 1, 2, 0, 0, 1, 1, 1, 1, 2, 2, 2])
    roles = np.array(["query"] * 3 + ["gallery"] * 9)
    index = ImageIndex("x", np.full((12, 8, 8, 3), 255, dtype=np.uint8), labels, roles)
    split = Split(index.subset("query"), index.subset("gallery"))
    # three neighbors of each query, of which the third one of the first is of another class
    places = [0.0, 10.0, 20.0, 0.1, 0.2, 0.9, 10.1, 10.2, 10.3, 20.1, 20.2, 20.3]
    points, numbers = torch.tensor(places)[:, None], torch.from_numpy(labels)
    embeddings = SplitEmbeddings(points[:3], numbers[:3], points[3:], numbers[3:])
    path = tmp_path / "grid.png"
    draw_neighbors(split, {"x": embeddings}, torch.nn.Identity(), "x", path, count=3)
    green, red = (count(path, color) for color in (GREEN, RED))
    assert red > 0
    assert 7 < green / red < 9  # eight right, one wrong


def test_the_best_evaluation_is_marked(tmp_path):
    rows = [{"epoch": e, "map_at_r": v, "loss": 1.0} for e, v in enumerate([0.3, 0.5, 0.4])]
    del rows[0]["loss"]
    learning_curve([pd.DataFrame(rows)], "map_at_r", "x", tmp_path / "curve.png")
    assert count(tmp_path / "curve.png", (204, 119, 34)) > 20
    assert Image.open(tmp_path / "curve.png").width > 500


@pytest.mark.parametrize("constant", [None, 0.5])
def test_the_axis_of_the_loss_says_what_is_drawn(tmp_path, monkeypatch, constant):
    rows = [{"epoch": epoch, "map_at_r": 0.5, "loss": 1.0} for epoch in range(3)]
    if constant is not None:
        rows = [{**row, "loss_without_constant": constant} for row in rows]
    figures = []
    monkeypatch.setattr(run_figures, "save", lambda figure, *_: figures.append(figure))
    learning_curve([pd.DataFrame(rows)], "map_at_r", "x", tmp_path / "curve.png")
    bottom = figures[0].axes[1]
    assert ("without its constant" in bottom.get_ylabel()) == (constant is not None)
    assert set(bottom.lines[0].get_ydata()) == {constant or 1.0}


@pytest.mark.pictures
def test_the_ends_of_stages_are_kept_and_drawn(run_tiny):
    few = ("method.stage_patience=1", "protocol.epochs=8", "optim.lr=0", "data.batch_size=16")
    few += ("data.images_per_class_at_most=8",)
    _, folder = run_tiny("method=ccp", "loss=c2", "evaluation.keep_embeddings=true", *few)
    assert len([*folder.glob("checkpoints/*/test_embeddings_stage*.npz")]) > 1
    for name, least in (("stages", 500), ("stage_maps", 3 * 3.8 * 130)):
        assert Image.open(folder / "figures" / f"{name}.png").width >= int(least)


def test_a_picture_of_a_search_holds_one_photo_in_memory(tmp_path, monkeypatch):
    for number in range(6):
        Image.new("RGB", (30, 20), (number, 0, 0)).save(tmp_path / f"{number}.png")
    kept, alive = [], []
    load = run_figures.load_image

    def watch(*args, **options):
        alive.append(sum(reference() is not None for reference in kept))
        photo = load(*args, **options)
        kept.append(weakref.ref(photo))
        return photo

    monkeypatch.setattr(run_figures, "load_image", watch)
    files = [str(tmp_path / f"{number}.png") for number in range(6)]
    found = pd.DataFrame({"query_label": None, "label": "a", "path": files})
    found = found.assign(rank=1, distance=0.5, matches=True)
    run_figures.draw_search_results(files[:2], found, tmp_path / "found.png")
    assert len(alive) == 8
    assert max(alive) <= 1


def test_pictures_of_a_search_say_what_they_show(tmp_path, monkeypatch, recwarn):
    """Rank, distance, class and file, of names with umlauts, formulas, lines and 200 characters."""
    names = [f"Straße $x^2$ 中文 {'sehr' * 40}.png", "b.png", "c.png"]
    for name in names:
        Image.new("RGB", (8, 8)).save(tmp_path / name)
    paths = [str(tmp_path / name) for name in names]
    found = pd.DataFrame(
        {
            "query_label": [None, None, "Käfer", "Käfer"],
            "rank": [1, 2, 1, 2],
            "distance": [0.0, 0.123456, 1.5, 1234.5678],
            "label": ["Käfer", "a\nb", None, "Käfer"],
            "path": [paths[0], paths[1], paths[2], paths[1]],
            "matches": [True, True, True, True],
        }
    )
    figures = []
    monkeypatch.setattr(run_figures, "draw_grids", keep(figures, run_figures.draw_grids))
    run_figures.draw_search_results(paths[:2], found, tmp_path / "found.png")
    below = [[text.get_text() for text in axis.texts] for axis in figures[0].axes]
    assert below[0][1] == "query\nKäfer\nb.png"
    assert below[0][0].startswith("query\nStraße")
    assert below[0][0].endswith("sehr.png")
    assert len(below[0][0].splitlines()[1]) == 21
    assert below[1][1:] == [
        "2 · 0.1235\na\\nb\nb.png",
        "1 · 1.5\nc.png",
        "2 · 1235\nKäfer\nb.png",
    ]
    assert not [warning for warning in recwarn if "Glyph" in str(warning.message)]


def keep(figures, draw):
    """Draws, and keeps the figure."""

    def draw_and_keep(*more, **options):
        figures.append(draw(*more, **options))
        return figures[-1]

    return draw_and_keep
