"""`dml evaluate errors=true per_query=true`: a page of the worst queries, a table of all."""

import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from dml.core.csv_cells import unquote_formula
from dml.core.errors import UserError
from dml.retrieval.embeddings import load_embeddings, read_names
from dml.runs import error_page
from tests.commands import evaluate

WORDS = ("errors=true", "per_query=true")
NAMES = ["Straße <b>", "quote \" and '", "=formula", "x" * 300]


class Outline(HTMLParser):
    """Tags of a page, and whether they nest."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.text = [], [], ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "img", "br", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data

    def of(self, tag, **wanted):
        chosen = [values for name, values in self.tags if name == tag]
        return [values for values in chosen if wanted.items() <= values.items()]


@pytest.fixture
def photos(tmp_path):
    """Paths of 25 images of five classes: one gone, one damaged, one transparent, one thin."""
    folder = tmp_path / "photos"
    folder.mkdir()
    paths = []
    for number in range(25):
        paths.append(str(folder / f"{'läng' * 40 if number == 2 else 'a'}{number}.png"))
        Image.effect_noise((130, 90), 20 + number).save(paths[-1])
    (folder / "a3.png").unlink()
    (folder / "a4.png").write_bytes(b"damaged")
    Image.new("RGBA", (20, 20), (0, 0, 0, 0)).save(paths[5])
    Image.new("L", (1, 1000), 80).save(paths[6])
    return paths


def store(path, paths=None, **arrays):
    """Writes 25 embeddings of five classes; the last one has a single image."""
    rng = np.random.default_rng(0)
    classes = np.minimum(np.arange(25) // 6, 4)
    arrays["embeddings"] = rng.normal(size=(25, 4)).astype(np.float32)
    arrays["labels"] = np.array([*NAMES, "alone"])[classes]
    if paths is not None:
        arrays["paths"] = np.array(paths)
    np.savez(path, **arrays)


def read_table(path):
    table = pd.read_csv(path)
    for name in ("query", "label", "nearest", "nearest_label"):
        table[name] = [unquote_formula(str(text)) for text in table[name]]
    return table


def test_the_page_of_a_file(evaluated, photos, tmp_path):
    store(tmp_path / "x.npz", photos)
    evaluated(f"embeddings={tmp_path}/x.npz", "errors=true")
    text = (tmp_path / "x.errors.html").read_text(encoding="utf-8")
    page = Outline(text)
    assert len(page.of("article")) == 24
    assert "1 query has no other image of its class to be found" in page.text
    assert "2 images could not be read: gone, moved or damaged." in page.text
    assert "<b>" not in text
    assert "Straße <b>" in page.text
    assert "x" * 61 not in page.text  # long names are cut in the middle
    assert {values["title"] for values in page.of("span") if "title" in values} >= {photos[2]}
    sources = [values["src"] for values in page.of("img")]
    assert len(sources) > 100
    assert all(source.startswith("data:image/") for source in sources)
    assert not re.search(r"https?:|url\(|<link(?! rel=\"icon\" href=\"data:,\")", text)
    assert "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text
    for heading in ("Worst queries", "Hardest classes", "Confused classes", "Distances"):
        assert heading in page.text
    assert "identified" not in page.text  # there are no training images
    assert not (tmp_path / "x.per_query.csv").exists()


def test_the_means_of_the_table_are_the_scores(evaluated, tmp_path):
    store(tmp_path / "x.npz")
    scores = evaluated(f"embeddings={tmp_path}/x.npz", "per_query=true")["metrics"]
    table = read_table(tmp_path / "x.per_query.csv")
    assert tuple(table.columns) == error_page.PER_QUERY
    assert len(table) == 25
    names = {"precision_at_1": "precision_at_1", "r_precision": "r_precision"}
    for column, metric in (names | {"average_precision_at_r": "map_at_r"}).items():
        assert table[column].mean() == pytest.approx(scores[metric], abs=1e-9)
    scored = table.dropna(subset="precision_at_1")
    assert len(scored) == scores["queries"]
    assert (scored["correct"] == (scored["precision_at_1"] == 1)).all()
    assert (scored["first_right_rank"].eq(1) == scored["correct"]).all()
    assert set(table["label"]) == {*NAMES, "alone"}
    assert table["query"].tolist() == [str(row) for row in range(25)]
    assert not (tmp_path / "x.errors.html").exists()


def test_a_page_without_image_files_has_names_alone(evaluated, tmp_path):
    for paths in (None, [f"gone/{row}.png" for row in range(25)]):
        store(tmp_path / "x.npz", paths)
        evaluated(f"embeddings={tmp_path}/x.npz", *WORDS)
        page = Outline((tmp_path / "x.errors.html").read_text(encoding="utf-8"))
        assert len(page.of("img")) == 1  # the histogram
        assert "no picture" not in page.text
        assert ("gone/7.png" in page.text) == (paths is not None)


def test_query_and_gallery(evaluated, photos, tmp_path):
    gallery = {"gallery_embeddings": np.eye(3, 4), "gallery_paths": np.array(["g0", "g1", "g2"])}
    store(tmp_path / "x.npz", photos, gallery_labels=np.array([*NAMES[:2], "other"]), **gallery)
    evaluated(f"embeddings={tmp_path}/x.npz", *WORDS)
    table = read_table(tmp_path / "x.per_query.csv")
    assert set(table["nearest"]) <= {"g0", "g1", "g2"}
    assert table["relevant"].tolist() == [1] * 12 + [0] * 13
    assert set(table["nearest_label"]) <= {*NAMES[:2], "other"}
    text = Outline((tmp_path / "x.errors.html").read_text(encoding="utf-8")).text
    assert "13 queries have no other image of their class" in text


def test_a_run(run_tiny, evaluated, monkeypatch, capsys):
    monkeypatch.setattr(error_page, "WORST", 20)
    _, folder = run_tiny("protocol.epochs=1")
    scores = evaluated(f"run={folder}", *WORDS)["metrics"]
    table = read_table(folder / "per_query.csv")
    assert table["average_precision_at_r"].mean() == pytest.approx(scores["map_at_r"], abs=1e-9)
    page = Outline((folder / "errors.html").read_text(encoding="utf-8"))
    assert len(page.of("article")) == 20
    assert len(page.of("img")) > 100  # pixels in memory have thumbnails, too
    assert f"errors      {folder}/errors.html" in capsys.readouterr().out


def test_a_network_without_a_run(evaluated, tmp_path, monkeypatch):
    monkeypatch.setattr(error_page, "WORST", 20)
    evaluated("backbone=small_cnn", "backbone.width=4", "data=digits", "errors=true")
    (page,) = tmp_path.glob("evaluations/digits-*/errors.html")
    assert "Errors of small_cnn on digits" in page.read_text()


@pytest.mark.promise(
    "guides/evaluate_embeddings.md",
    "a page or table of errors has the name of a file of yours: one line says so before the work, "
    "and the file stays",
)
@pytest.mark.parametrize("name", ["errors.html", "per_query.csv"])
def test_files_of_others_stay(evaluated, tmp_path, name):
    store(tmp_path / "x.npz")
    path = tmp_path / f"x.{name}"
    path.write_text("mine")
    words = (f"embeddings={tmp_path}/x.npz", *WORDS)
    with pytest.raises(UserError, match=f"{re.escape(str(path))} exists.*overwrite=true"):
        evaluated(*words)
    assert path.read_text() == "mine"
    evaluated(*words, "overwrite=true")
    evaluated(*words)  # now it is ours
    assert path.read_text() != "mine"


@pytest.mark.promise(
    "guides/evaluate_embeddings.md",
    "images of a page of errors are gone or damaged: the page counts them, and has all others",
)
def test_unreadable_images_leave_the_others(evaluated, photos, tmp_path):
    store(tmp_path / "x.npz", photos)
    evaluated(f"embeddings={tmp_path}/x.npz", "errors=true")
    page = Outline((tmp_path / "x.errors.html").read_text(encoding="utf-8"))
    shown = [values["alt"] for values in page.of("img")]
    assert page.text.count("no picture") > 0
    assert len(shown) > 10 * page.text.count("no picture")


def test_a_parquet_file(evaluated, tmp_path):
    pytest.importorskip("pyarrow")
    store(tmp_path / "x.npz")
    with np.load(tmp_path / "x.npz") as file:
        columns = {"embeddings": list(file["embeddings"]), "labels": file["labels"]}
        columns["image"] = [{"bytes": b"x", "path": "x"}] * 25
    pd.DataFrame(columns).to_parquet(tmp_path / "y.parquet")
    expected = evaluated(f"embeddings={tmp_path}/x.npz")["metrics"]
    assert evaluated(f"embeddings={tmp_path}/y.parquet", *WORDS)["metrics"] == expected
    assert set(read_table(tmp_path / "y.per_query.csv")["label"]) == {*NAMES, "alone"}
    pd.DataFrame(columns).drop(columns="labels").to_parquet(tmp_path / "z.parquet")
    with pytest.raises(UserError, match="it has no column labels"):
        evaluated(f"embeddings={tmp_path}/z.parquet")


def test_flags_are_options(tmp_path, capfd):
    store(tmp_path / "x.npz")
    assert evaluate([f"embeddings={tmp_path}/x.npz", "--errors", "--per-query", "device=cpu"]) == 0
    assert (tmp_path / "x.errors.html").exists()
    assert (tmp_path / "x.per_query.csv").exists()
    assert evaluate([f"embeddings={tmp_path}/x.npz", "--error"]) == 2
    assert len(capfd.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("kind", ["short", "objects", "texts", "numbers", "none"])
def test_paths_that_do_not_fit_have_a_note(tmp_path, capsys, kind):
    paths = {
        "short": np.array(["a.png"] * 5),
        "objects": np.array(["a.png"] * 6, object),
        "texts": np.array([f"{row}.png" for row in range(6)]),
        "numbers": np.arange(6),
    }
    arrays = {"embeddings": np.eye(6), "labels": np.arange(6) % 2}
    if kind in paths:
        arrays["paths"] = paths[kind]
    np.savez(tmp_path / "x.npz", **arrays)
    embeddings = load_embeddings(tmp_path / "x.npz", torch.device("cpu"))
    names = read_names(tmp_path / "x.npz", embeddings).paths
    noted = "note: paths is no list of 6 texts" in capsys.readouterr().err
    assert noted == (kind in ("short", "objects"))
    assert names == [f"{row}.png" if kind == "texts" else str(row) for row in range(6)]
