import re
from datetime import datetime

import numpy as np
import pytest
import torch

from dml.core.errors import UserError
from dml.retrieval.embeddings import SplitEmbeddings
from dml.retrieval.query_scores import score_queries
from dml.runs import error_page
from dml.runs.error_page import Evaluation, ShownImages, render_errors

NOON = datetime(2026, 1, 2, 12)


def evaluate(points, labels, load=None, names=None):
    """An evaluation of points on a line, each by all others."""
    classes = sorted(set(labels))
    numbers = np.array([classes.index(label) for label in labels])
    embeddings = SplitEmbeddings(torch.tensor(points)[:, None], torch.from_numpy(numbers))
    images = ShownImages(names or [f"{row}.png" for row in range(len(points))], numbers, load)
    return Evaluation("x", score_queries(embeddings), images, images, classes)


def tables(text):
    """Cells of the tables of a page, with the head of each row first."""
    rows = re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', text)
    return [[name, *re.findall(r"<td[^>]*>(.*?)</td>", rest)] for name, rest in rows]


def pixels(row):
    return torch.full((3, 50, 80), 8 * row, dtype=torch.uint8)


def test_classes_and_pairs_by_hand():
    """Class a is taken for b, b once for a and once for c, and c and d are right."""
    points = [0.0, 10.0, 1.0, 11.5, 12.0, 12.2, 90.0, 91.0]
    evaluation = evaluate(points, "aabbccdd")
    assert tables(render_errors(evaluation, NOON)) == [
        ["a", "2", "0.0", "0.0", "b"],
        ["b", "2", "0.0", "0.0", "a"],
        ["c", "2", "100.0", "100.0", "–"],
        ["d", "2", "100.0", "100.0", "–"],
        ["a", "b", "2", "2"],
        ["b", "a", "1", "2"],
        ["b", "c", "1", "2"],
    ]


def test_no_mistakes():
    text = render_errors(evaluate([0.0, 1.0, 50.0, 51.0], "aabb"), NOON)
    assert "The nearest image of every query is of its class." in text
    assert "left out" not in text


def test_one_class_and_equal_images():
    for points in ([0.0, 1.0, 3.0], [1.0, 1.0, 1.0]):
        text = render_errors(evaluate(points, "aaa"), NOON)
        assert "Medians" not in text
        assert "nan" not in re.sub(r"data:[^\"]*", "", text)


def test_a_page_has_a_limit(monkeypatch):
    points = np.random.default_rng(0).normal(size=30).tolist()
    evaluation = evaluate(points, "ab" * 15, pixels)
    whole = render_errors(evaluation, NOON)
    assert "left out" not in whole
    monkeypatch.setattr(error_page, "PICTURE_BYTES", 50_000)
    text = render_errors(evaluation, NOON)
    pictures = re.findall(r'src="(data:image/jpeg[^"]*)"', text)
    assert 40_000 < sum(map(len, pictures)) <= 50_000
    assert "pictures are left out, so that the page stays below 20 MB" in text
    assert text.count("no picture") == whole.count("data:image/jpeg") - len(pictures)


def test_each_image_has_its_thumbnail_and_is_loaded_once():
    loaded = []

    def load(row):
        loaded.append(row)
        if row == 2:
            raise UserError("damaged")
        return pixels(row)

    text = render_errors(evaluate([0.0, 10.0, 1.0, 11.0], "aabb", load), NOON)
    assert sorted(loaded) == [0, 1, 2, 3]
    assert "1 image could not be read" in text
    by_name = {}
    for figure in text.split("<figure")[1:-1]:
        name = re.search(r'title="(\d\.png)"', figure)[1]
        by_name.setdefault(name, set()).update(re.findall(r'src="([^"]*)"', figure))
    assert [len(by_name[f"{row}.png"]) for row in range(4)] == [1, 1, 0, 1]
    assert len(set.union(*by_name.values())) == 3


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "\x1b[31m", "c\udcff", "ä" * 300])
def test_texts_of_others_are_texts(name):
    text = render_errors(
        evaluate([0.0, 1.0, 2.0, 3.0], [name, name, "b", "b"], names=[name] * 4), NOON
    )
    assert "<script>alert" not in text
    assert "\x1b" not in text
    assert "\udcff" not in text
    assert "ä" * 61 not in re.sub('title="[^"]*"|data-label="[^"]*"', "", text)
