import numpy as np
from PIL import Image

from dml.runs.figures.drawing import RetrievedImages, learning_curve, neighbor_grid

GREEN, RED, GREY = (46, 139, 87), (187, 51, 51), (119, 119, 119)


def count(path, color):
    pixels = np.asarray(Image.open(path).convert("RGB")).astype(int)
    return int((np.abs(pixels - color).max(axis=2) < 12).sum())


def test_frames_tell_right_from_wrong(tmp_path):
    images = [np.full((8, 8, 3), 255, dtype=np.uint8)] * 3
    correct = np.array([[True, True, False], [True, True, True], [True, True, True]])
    neighbor_grid(images, [RetrievedImages("x", [images] * 3, correct)], "x", tmp_path / "grid.png")
    green, red = (count(tmp_path / "grid.png", color) for color in (GREEN, RED))
    assert red > 0
    assert 7 < green / red < 9  # eight right, one wrong


def test_the_best_evaluation_is_marked(tmp_path):
    rows = [{"epoch": e, "map_at_r": v, "loss": 1.0} for e, v in enumerate([0.3, 0.5, 0.4])]
    del rows[0]["loss"]
    learning_curve([rows], "map_at_r", "x", tmp_path / "curve.png")
    assert count(tmp_path / "curve.png", (204, 119, 34)) > 20
    assert Image.open(tmp_path / "curve.png").width > 500
