import io
import os
import re
import shutil
import time

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import dml
from dml.core.errors import UserError
from dml.data.decode import load_image
from dml.data.image_index import ImageIndex
from dml.retrieval import embedding_file
from dml.runs.build import Builder
from dml.runs.embed_images import new_file
from dml.runs.embed_images import rows as embedded_rows
from dml.runs.load import load_config


@pytest.fixture
def photos(tmp_path):
    """Twelve images of three classes."""
    for number in range(12):
        path = tmp_path / "photos" / f"kind{number // 4}" / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.effect_noise((8, 8), 20 * number + 10).save(path)
    return tmp_path / "photos"


@pytest.fixture
def net(run_tiny, tmp_path):
    _, folder = run_tiny("protocol.epochs=1")
    return dml.export(folder, tmp_path / "net")


def test_equal_to_evaluate(run_tiny, evaluated):
    _, folder = run_tiny("protocol.epochs=1")
    evaluated(f"run={folder}", "save=float32")
    index = Builder(load_config(folder)).index()
    made = dml.embed(folder, index.images[index.roles == "test"])
    with np.load(folder / "embeddings.npz") as file:
        assert np.array_equal(made.embeddings, file["embeddings"])
    assert (made.paths[-1], made.labels) == ("895", None)
    assert made.made_by["network"] == str(folder)


@pytest.mark.parametrize("views", [0, 3])
@pytest.mark.promise(
    "guides/use_your_network.md",
    "`dml embed` is interrupted: the same command continues, and the file is the same, bit for bit",
)
def test_an_interrupted_call_continues(net, photos, tmp_path, monkeypatch, views):
    expected, passed = dml.embed(net, photos, batch_size=5, views=views), []
    show = embedded_rows.show_progress
    output = tmp_path / "x.npz"
    monkeypatch.setattr(embedded_rows, "show_progress", lambda *more: _break(show(*more)))
    with pytest.raises(KeyboardInterrupt):
        dml.embed(net, photos, output, batch_size=5, views=views)
    assert not output.exists()
    (rows,) = (path for path in (tmp_path / ".x.npz.partial").iterdir() if len(path.name) == 64)
    with open(rows, "ab") as file:
        file.write(b"part of a row")
    monkeypatch.setattr(embedded_rows, "show_progress", lambda *more: _count(show(*more), passed))
    result = dml.embed(net, photos, output, batch_size=5, views=views)
    assert passed == [5, 2]  # images in the batches that were left
    assert np.array_equal(result.embeddings, expected.embeddings)
    assert np.array_equal(result.views, expected.views)
    assert not (tmp_path / ".x.npz.partial").exists()


@pytest.mark.promise(
    "guides/use_your_network.md",
    "images were replaced since `dml embed` was interrupted: all are embedded again",
)
@pytest.mark.parametrize("form", ["folder", "list", "table"])
def test_images_that_were_replaced_meanwhile(net, photos, tmp_path, monkeypatch, form):
    paths = sorted(photos.rglob("*.png"))
    images = {"folder": photos, "list": paths, "table": tmp_path / "photos.csv"}[form]
    labels = [path.parent.name for path in paths]
    pd.DataFrame({"path": paths, "label": labels}).to_csv(tmp_path / "photos.csv", index=False)
    output = tmp_path / "x.npz"
    with monkeypatch.context() as patch:
        show = embedded_rows.show_progress
        patch.setattr(embedded_rows, "show_progress", lambda *more: _break(show(*more)))
        with pytest.raises(KeyboardInterrupt):
            dml.embed(net, images, output, batch_size=5)
    _replace(paths[0])
    result = dml.embed(net, images, output, batch_size=5)
    assert np.array_equal(result.embeddings, dml.embed(net, images, batch_size=5).embeddings)


def _replace(path):
    """Replaces an image by another whose file is as large."""
    size = path.stat().st_size
    Image.effect_noise((8, 8), 255).transpose(Image.Transpose.ROTATE_90).save(path)
    content = path.read_bytes()
    path.write_bytes(content + bytes(max(0, size - len(content))))


@pytest.mark.parametrize("views", [0, 3])
def test_a_call_that_is_interrupted_while_it_writes_continues(
    net, photos, tmp_path, monkeypatch, views
):
    """All rows are there then: no image is embedded again."""
    expected, output = dml.embed(net, photos, batch_size=4, views=views), tmp_path / "x.npz"
    with monkeypatch.context() as patch:
        patch.setattr(new_file.embedding_file, "write_embeddings", _stop)
        with pytest.raises(KeyboardInterrupt):
            dml.embed(net, photos, output, batch_size=4, views=views)
    passed = []
    show = embedded_rows.show_progress
    monkeypatch.setattr(embedded_rows, "show_progress", lambda *more: _count(show(*more), passed))
    result = dml.embed(net, photos, output, batch_size=4, views=views)
    assert passed == []
    assert np.array_equal(result.embeddings, expected.embeddings)
    assert np.array_equal(result.views, expected.views)


def test_views_are_augmented_and_reproducible(net, photos):
    plain = dml.embed(net, photos, features=True)
    made, same = (dml.embed(net, photos, features=True, views=2, batch_size=b) for b in (12, 5))
    assert plain.views is None
    assert np.array_equal(made.embeddings, plain.embeddings)
    assert made.views.shape == (12, 2, 16)
    np.testing.assert_allclose(made.views, same.views, atol=1e-6)
    assert (np.abs(made.views[:, 0] - made.views[:, 1]).max(-1) > 1e-4).mean() > 0.5
    assert made.made_by["views"] == 2


def test_parquet(net, photos, tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(embedding_file, "ROWS", 5)
    files = [tmp_path / name for name in ("x.npz", "x.parquet")]
    made, stored = (dml.embed(net, photos, f, views=2, dtype="float16") for f in files)
    for name in ("embeddings", "paths", "labels", "views"):
        assert np.array_equal(getattr(made, name), getattr(stored, name))
    assert (stored.embeddings.dtype, stored.made_by) == ("float16", made.made_by)
    assert dml.search(files[1], [0], k=3).equals(dml.search(files[0], [0], k=3))


def _break(batches):
    yield next(iter(batches))
    raise KeyboardInterrupt


def _stop(*_):
    raise KeyboardInterrupt


def _count(batches, passed):
    for images, labels in batches:
        passed.append(len(images))
        yield images, labels


def test_labels_and_lists(net, photos, tmp_path, evaluated):
    made = dml.embed(net, photos, tmp_path / "x.npz", dtype="float16")
    scored = evaluated(f"embeddings={tmp_path}/x.npz")["metrics"]
    assert (scored["queries"], scored["queries_without_match"]) == (12, 0)
    assert made.embeddings.dtype == "float16"
    assert made.labels.tolist() == ["kind0"] * 4 + ["kind1"] * 4 + ["kind2"] * 4
    assert dml.embed(net, photos / "kind1").labels is None
    (photos / "a.csv").write_text("path,label\nkind0/00.png,cup\nkind2/09.png,hat\n")
    (photos / "a.txt").write_text("kind0/00.png\n\nkind2/09.png\n")
    assert dml.embed(net, photos / "a.csv").labels.tolist() == ["cup", "hat"]
    listed = dml.embed(net, photos / "a.txt", features=True)
    assert (listed.labels, listed.embeddings.shape) == (None, (2, 16))


class Lazy:
    """Images of Pillow and arrays that are made at every access."""

    def __len__(self):
        return 40

    def __getitem__(self, row):
        image = Image.new("L", (8, 8), 5 * row)
        return np.asarray(image.convert("RGB")) if row % 2 else image


def read_lazily():
    labels = np.arange(40) // 5
    return ImageIndex("lazy", Lazy(), labels, np.where(labels < 4, "train", "test"))


def test_a_lazy_sequence_trains_and_is_embedded(run_tiny, net):
    small = ("data.batch_size=8", "backbone=small_cnn", "transform.size=8", "data.cache=full")
    reader = f"data.reader._target_={__name__}.read_lazily"
    summary, folder = run_tiny("data=custom", "protocol.epochs=1", *small, reader)
    assert summary["classes_tested"] == "20 images of 4 unseen classes"
    assert read_lazily().fingerprint() in (folder / "dataset.json").read_text()
    made = dml.embed(net, Lazy())
    assert (len(made.embeddings), made.paths[3], made.labels) == (40, "3", None)
    pixels = [load_image(Lazy()[row]).permute(1, 2, 0).numpy() for row in range(40)]
    assert np.array_equal(made.embeddings, dml.embed(net, np.stack(pixels)).embeddings)


def test_a_final_network_on_all_classes(run_tiny, tmp_path, capsys):
    summary, folder = run_tiny("protocol=all_classes", "protocol.epochs=2", "loss=proxy_anchor")
    assert (summary["metrics"], summary["best_epoch"]) == ({}, [2])
    assert summary["selected_by"] == "map_at_r on nothing"
    assert "no scores" in capsys.readouterr().out
    history = (folder / "history.csv").read_text()
    assert (history.count("\n"), "map_at_r" in history) == (4, False)
    state = torch.load(folder / "checkpoints/repeat0-fold0/best.pt", weights_only=False)
    assert [len(v) for name, v in state["method"].items() if "prox" in name] == [10]
    assert "No scores" in (dml.export(folder, tmp_path / "net") / "README.md").read_text()


def test_search_is_exact(tmp_path):
    points = np.random.default_rng(0).standard_normal((300, 8)).astype(np.float32)
    points[[7, 130, 255]] = points[20]  # ties go to the lower row
    np.savez(tmp_path / "x.npz", embeddings=points)
    found = dml.search(tmp_path / "x.npz", [20, 299], k=9)
    for query, rows in found.groupby("query", sort=False):
        squared = ((points.astype(float) - points[int(query)]) ** 2).sum(1)
        squared[int(query)] = np.inf
        nearest = np.argsort(squared, kind="stable")[:9]
        assert rows["row"].tolist() == nearest.tolist()
        assert rows["distance"].to_numpy() == pytest.approx(np.sqrt(squared[nearest]))


def test_an_index_is_saved(tmp_path, capsys):
    faiss = pytest.importorskip("faiss")
    path, saved = tmp_path / "x.npz", tmp_path / "x.npz.faiss"
    points = np.random.default_rng(0).standard_normal((2_000, 8)).astype(np.float32)
    np.savez(path, embeddings=points)
    exact, found, again = (dml.search(path, [3, 1999], k=5, index=i) for i in (False, True, True))
    assert re.search(r"the index finds (9\d|100)\.\d% of exact", capsys.readouterr().err)
    pd.testing.assert_frame_equal(found, exact)
    pd.testing.assert_frame_equal(again, exact)
    assert faiss.read_index(str(saved)).ntotal == 2_000
    np.savez(path, embeddings=points[:1_500])  # the file is newer
    assert dml.search(path, [7], k=5, index=True)["row"].max() < 1_500


def test_search_by_pictures(net, photos, tmp_path):
    made = dml.embed(net, photos, tmp_path / "x.npz")
    copied = tmp_path / "new.png"
    copied.write_bytes((photos / "kind1" / "06.png").read_bytes())
    queries = [copied, photos / "kind1" / "06.png"]
    found = dml.search(tmp_path / "x.npz", queries, k=2, picture=tmp_path / "found.png")
    assert found["row"].iloc[0] == 6
    assert found["duplicate"].tolist() == [True, False, False, False]
    assert found["row"].iloc[1] == found["row"].iloc[2]  # without itself
    assert found["query_label"].fillna("").tolist() == ["", "", "kind1", "kind1"]
    assert found["path"].iloc[0] == made.paths[6]
    assert Image.open(tmp_path / "found.png").size[0] > 300


def test_a_query_is_embedded_with_the_options_of_the_file(photos, tmp_path):
    """A network of timm has another input size by its options; equal weights do not show it."""
    file, new = tmp_path / "x.npz", tmp_path / "new.png"
    options = ["backbone.input_size=32", "backbone.weights=none"]
    made = dml.embed("timm:test_resnet", photos, file, options=options)
    shutil.copy2(made.paths[3], new)
    found = dml.search(file, [new], k=1)
    assert (found["row"][0], found["distance"][0]) == (3, pytest.approx(0, abs=1e-5))


def test_a_query_is_embedded_without_advice_for_other_commands(net, photos, tmp_path, caplog):
    dml.embed(net, photos, tmp_path / "x.npz")
    new = tmp_path / "new.png"
    shutil.copy2(photos / "kind1/05.png", new)
    caplog.clear()
    assert dml.search(tmp_path / "x.npz", [new], k=1)["row"][0] == 5
    assert caplog.messages == []  # nothing about the class of one image
    new.write_bytes(b"damaged")
    with pytest.raises(UserError, match=r"cannot decode .*new\.png: cannot identify image file$"):
        dml.search(tmp_path / "x.npz", [new], k=1)


@pytest.mark.parametrize("network", ["timm:test_resnet", "absent"])
def test_a_network_that_cannot_be_had_fails_before_images_are_decoded(network, photos, monkeypatch):
    decoded = []
    name = "dml.runs.embed_images.images.find_undecodable"
    monkeypatch.setattr(name, lambda *more: decoded.append(1))
    options = ["backbone.weights=absent.pth"] if network.startswith("timm:") else []
    with pytest.raises(UserError, match="absent"):
        dml.embed(network, photos, skip_corrupt=True, options=options)
    assert decoded == []


def test_damaged_images_are_left_out_and_listed_on_request(net, photos, tmp_path, caplog):
    damaged = [photos / "kind0/01.png", photos / "kind2/08.png"]
    whole = dml.embed(net, photos)
    for path in damaged:
        path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(UserError, match=r"kind0/01\.png: .*--skip-corrupt leaves out"):
        dml.embed(net, photos)
    made = dml.embed(net, photos, tmp_path / "out.npz", skip_corrupt=True)
    kept = [row for row in range(12) if row not in (1, 8)]
    np.testing.assert_allclose(made.embeddings, whole.embeddings[kept], atol=1e-6)
    assert np.array_equal(made.paths, whole.paths[kept])
    assert np.array_equal(made.labels, whole.labels[kept])
    for path in damaged:
        assert f"left out: data: cannot decode {path}" in caplog.text
    assert "images: 2 of 12 are left out" in caplog.text
    for path in photos.rglob("*.png"):
        path.write_bytes(b"damaged")
    with pytest.raises(UserError, match="none can be decoded"):
        dml.embed(net, photos, skip_corrupt=True)


@pytest.mark.promise(
    "guides/use_your_network.md",
    "thumbnails are asked for in an `.npz` file: one line says that a `.parquet` file carries them",
)
def test_thumbnails_need_a_parquet_file(net, photos, tmp_path):
    for output in (tmp_path / "x.npz", None):
        with pytest.raises(UserError, match=r"thumbnails: a \.parquet file carries them"):
            dml.embed(net, photos, output, thumbnails=96)
    with pytest.raises(UserError, match="thumbnails: 5000 is not between 1 and 1024"):
        dml.embed(net, photos, tmp_path / "x.parquet", thumbnails=5000)


def test_thumbnails_and_neighbors(photos, tmp_path, evaluated):
    """Upright, on the background, small: what a viewer of the file shows is what was embedded."""
    parquet = pytest.importorskip("pyarrow.parquet")
    red = Image.new("RGB", (40, 20), "red")
    exif = red.getexif()
    exif[0x0112] = 6  # a quarter turn
    red.save(photos / "kind0" / "00.png", exif=exif)
    Image.new("RGBA", (300, 30), (0, 0, 0, 0)).save(photos / "kind0" / "01.png")
    file, plain = tmp_path / "x.parquet", tmp_path / "plain.parquet"
    net, options = "timm:test_resnet", ["backbone.input_size=32", "backbone.weights=none"]
    made = dml.embed(net, photos, file, thumbnails=16, options=options)
    rows = parquet.read_table(file).to_pylist()
    images = [Image.open(io.BytesIO(row["image"]["bytes"])) for row in rows]
    assert [image.size for image in images[:3]] == [(8, 16), (16, 2), (8, 8)]
    assert images[1].getpixel((8, 1)) == (255, 255, 255)
    assert [row["image"]["path"] for row in rows] == made.paths.tolist()
    found = dml.search(file, [0], k=10)
    assert found["row"].tolist() == rows[0]["neighbors"]["ids"]
    assert found["distance"].to_numpy() == pytest.approx(rows[0]["distances"], abs=1e-6)
    assert rows[0]["nearest_label"] == found["label"][0]
    scores = evaluated(f"embeddings={file}", "recall_at=[1]")["metrics"]
    assert np.mean([row["correct"] for row in rows]) == pytest.approx(scores["precision_at_1"])
    same = dml.embed(net, photos, plain, options=options)
    assert np.array_equal(same.embeddings, made.embeddings)
    assert "image" not in parquet.read_schema(plain).names


def test_without_labels_no_columns_of_labels(net, photos, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    dml.embed(net, photos / "kind1", tmp_path / "x.parquet", thumbnails=16)
    of_files = ["roots", "file_sizes", "file_times"]
    names = parquet.read_schema(tmp_path / "x.parquet").names
    assert names == ["embeddings", "paths", *of_files, "image", "neighbors", "distances"]
    dml.embed(net, photos / "kind1" / "05.png", tmp_path / "y.parquet", thumbnails=16)
    names = parquet.read_schema(tmp_path / "y.parquet").names
    assert names == ["embeddings", "paths", *of_files, "image"]


@pytest.mark.promise(
    "guides/use_your_network.md",
    "an image of the file was replaced, or the current folder is another one: its row answers only "
    "if the image is the one that was embedded",
)
@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_a_query_is_a_row_only_if_it_is_the_image_that_was_embedded(
    net, photos, tmp_path, monkeypatch, suffix
):
    past = time.time() - 60
    for path in photos.rglob("*.png"):
        os.utime(path, (past, past))
    monkeypatch.chdir(tmp_path)
    file = str(tmp_path / f"x{suffix}")
    dml.embed(net, "photos", file)
    inside = dml.search(file, ["photos/kind1/05.png"], k=3)
    assert inside["query_label"].tolist() == ["kind1"] * 3
    (tmp_path / "other" / "photos" / "kind1").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "other")
    outside = dml.search(file, ["../photos/kind1/05.png"], k=3)  # the same image
    assert outside["path"].tolist() == inside["path"].tolist()
    assert outside["query_label"].tolist() == ["kind1"] * 3
    Image.effect_noise((9, 9), 200).save("photos/kind1/05.png")  # another image of this name
    other = dml.search(file, ["photos/kind1/05.png"], k=3)
    assert other["query_label"].isna().all()
    monkeypatch.chdir(tmp_path)
    _replace(tmp_path / "photos/kind1/05.png")
    replaced = dml.search(file, ["photos/kind1/05.png"], k=3)
    assert replaced["query_label"].isna().all()
    assert replaced["distance"].tolist() != inside["distance"].tolist()
    (tmp_path / "photos/kind1/05.png").unlink()
    gone = dml.search(file, ["photos/kind1/05.png"], k=3)  # its row is still there
    assert gone["distance"].tolist() == inside["distance"].tolist()
