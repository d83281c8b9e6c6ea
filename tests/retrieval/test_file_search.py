"""The index of a file of embeddings: whose it is, and what ends in a line instead of a crash."""

import os
import shutil

import numpy as np
import pandas as pd
import pytest

from dml.core.errors import UserError
from dml.retrieval import file_classification, file_index, file_search, near_duplicates
from dml.retrieval.compression import Compression
from dml.retrieval.embedding_file import ImageEmbeddings, write_embeddings

faiss = pytest.importorskip("faiss")


def write(path, seed=0, rows=200, width=4, scale=1.0, dtype=np.float32):
    points = np.random.default_rng(seed).standard_normal((rows, width)) * scale
    np.savez(path, embeddings=points.astype(dtype))
    return path


def search(path, index=True, rows=(3, 150), k=3):
    _, table = file_search.search_file(path, [*rows], k, None, index)
    return table["row"].tolist()


@pytest.fixture
def indexed(tmp_path):
    """A file with its index."""
    path = write(tmp_path / "x.npz")
    search(path)
    return path, tmp_path / "x.npz.faiss"


@pytest.mark.parametrize("index", [False, True])
@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_rows_distances_and_duplicates_are_those_of_a_full_sort(tmp_path, scale, index):
    points = scale * np.random.default_rng(0).standard_normal((90, 5))
    points[40] = points[3] * (1 + 5e-4)  # a duplicate, of embeddings of any length
    points[41] = points[3] * (1 + 5e-3)
    np.savez(tmp_path / "x.npz", embeddings=points)
    _, table = file_search.search_file(tmp_path / "x.npz", [3, 70], 6, None, index)
    for query, found in pd.DataFrame(table).groupby("query"):
        apart = np.linalg.norm(points - points[int(query)], axis=1)
        order = [row for row in np.argsort(apart, kind="stable") if row != int(query)][:6]
        assert found["row"].tolist() == order
        assert found["rank"].tolist() == [1, 2, 3, 4, 5, 6]
        assert found["distance"].to_numpy() == pytest.approx(apart[order], rel=1e-9)
        assert found["duplicate"].tolist() == [query == "3" and row == 40 for row in order]


@pytest.mark.parametrize("dtype", ["f8", ">f8", "g"])
def test_embeddings_of_double_precision_that_float32_would_not_tell_apart(tmp_path, dtype):
    points = 1 + 1e-9 * np.random.default_rng(0).standard_normal((50, 4))
    np.savez(tmp_path / "x.npz", embeddings=points.astype(dtype))
    _, table = file_search.search_file(tmp_path / "x.npz", [7], 49, None)
    order = np.argsort(np.linalg.norm(points - points[7], axis=1))[1:]
    assert table["row"].tolist() == order.tolist()


@pytest.mark.parametrize("form", [None, "int8"])
def test_queries_of_several_lengths_classes_and_origins_are_told_apart(tmp_path, form, monkeypatch):
    """Rows and new images in turn, each with its own class and its own limit of duplicates."""
    random = np.random.default_rng(0)
    points = random.standard_normal((23, 5)).astype(np.float32)
    points[11:] *= 100
    points[7] = points[3] * 1.01  # near, but no duplicate of the short one
    points[20] = points[15] + np.float32(0.05)  # a duplicate of the long one
    stored, decoded = points, points
    if form is not None:
        points[20] = points[15]
        made = Compression.fit(form, points, "")
        stored, decoded = made.encode(points), made.decode(made.encode(points))
    labels = np.array([f"c{row % 4}" for row in range(23)])
    paths = np.array([f"photos/{row}/x.png" for row in range(23)])  # names alone are all equal
    new = np.stack([points[15] + np.float32(0.02), points[9] + 1])
    if form is not None:
        content = ImageEmbeddings(stored, paths, labels, {}, compression=made)
        write_embeddings(tmp_path / "x.npz", content)
    else:
        np.savez(tmp_path / "x.npz", embeddings=points, labels=labels, paths=paths)
    monkeypatch.chdir(tmp_path)
    queries = [3, "new/x.png", "photos/15/x.png", "other/x.png", 7]
    rows = [3, -1, 15, -1, 7]
    vectors = [decoded[3], new[0], decoded[15], new[1], decoded[7]]
    asked = []
    files, table = file_search.search_file(
        tmp_path / "x.npz", queries, 4, lambda names, _: asked.append(names) or new
    )
    assert asked == [["new/x.png", "other/x.png"]]
    assert files == [paths[3], "new/x.png", paths[15], "other/x.png", paths[7]]
    for number, (row, vector) in enumerate(zip(rows, vectors, strict=True)):
        part = slice(4 * number, 4 * number + 4)
        apart = np.linalg.norm(decoded.astype(float) - vector.astype(float), axis=1)
        order = [other for other in np.argsort(apart, kind="stable") if other != row][:4]
        assert table["row"][part].tolist() == order
        assert table["query"][part].tolist() == [str(queries[number])] * 4
        assert table["query_label"][part].tolist() == [None if row < 0 else labels[row]] * 4
        assert table["label"][part].tolist() == labels[order].tolist()
        if form is None:
            near = [bool(apart[other] <= 1e-3 * np.linalg.norm(vector)) for other in order]
            assert table["duplicate"][part].tolist() == near
    assert table["duplicate"][table["row"] == 20].tolist() == [True, True]  # of 15 and its like
    if form is None:  # short vectors have one code among long ones
        assert not table["duplicate"][16:].any()


@pytest.mark.parametrize("k", [5, 6])
def test_a_query_of_the_file_and_a_new_one_find_as_many(tmp_path, k, capsys):
    """Of six rows, one of them finds five others, and a new image six."""
    path = write(tmp_path / "x.npz", rows=6)
    new = np.ones((1, 4), np.float32)
    if k == 5:
        _, table = file_search.search_file(path, ["new.png", 2], k, lambda *_: new)
        assert sorted(table["row"][k:]) == [0, 1, 3, 4, 5]
        return
    _, table = file_search.search_file(path, ["new.png", 2], k, lambda *_: new)
    assert len(table["row"]) == 10  # as many for both
    assert sorted(table["row"][5:]) == [0, 1, 3, 4, 5]
    assert table["rank"].tolist() == [1, 2, 3, 4, 5] * 2
    assert "find 5 images in the file" in capsys.readouterr().err
    _, table = file_search.search_file(path, ["new.png"], k, lambda *_: new)
    assert sorted(table["row"]) == [*range(6)]


def test_an_index_beside_faiss_for_torch(tmp_path):
    """Losses of PML and `evaluation.backend=faiss` load it; it refuses arrays that are mapped."""
    pytest.importorskip("faiss.contrib.torch_utils")
    path = write(tmp_path / "x.npz", seed=0)
    assert search(path) == search(path, index=False)


def test_an_index_is_used_again_for_the_same_content(indexed, monkeypatch, capsys):
    path, saved = indexed
    before = saved.read_bytes()
    os.utime(path)  # newer than the index, as after a copy
    monkeypatch.setattr(file_index, "_build_index", None)  # a call would raise
    assert search(path) == search(path, index=False)
    assert saved.read_bytes() == before


@pytest.mark.parametrize("width", [4, 6])
def test_another_file_moved_into_place(indexed, tmp_path, width):
    path, saved = indexed
    other = write(tmp_path / "other.npz", seed=1, width=width)
    os.utime(other, (1, 1))  # older than the index
    shutil.move(other, path)
    assert search(path) == search(path, index=False)
    built = saved.read_bytes()
    assert search(path) == search(path, index=False)
    assert saved.read_bytes() == built


def test_an_index_of_another_file(indexed, tmp_path):
    _, saved = indexed
    other = write(tmp_path / "y.npz", seed=1)
    shutil.copy(saved, tmp_path / "y.npz.faiss")
    assert search(other) == search(other, index=False)


@pytest.mark.parametrize("row", [0, 63, 64, 127, 199])
def test_a_change_in_any_row_is_seen(tmp_path, monkeypatch, row):
    """Rows are read in parts of 64: also one in the last part, which is shorter."""
    monkeypatch.setattr(file_index, "CHUNK", 64)
    path = write(tmp_path / "x.npz")
    search(path)
    points = np.load(path)["embeddings"]
    points[row] = points[5] + 1e-3
    np.savez(path, embeddings=points)
    assert search(path, rows=[5], k=2)[0] == row
    points[row, 1] = np.nan
    np.savez(path, embeddings=points)
    with pytest.raises(UserError, match="NaN or infinite"):
        search(path)


def test_damaged_everywhere(indexed):
    path, saved = indexed
    whole = saved.read_bytes()
    for place in (5, 40, len(whole) // 2, len(whole) - 1):
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        for content in (bytes(damaged), whole[:place], b"IwFl" * place):
            saved.write_bytes(content)
            assert search(path) == search(path, index=False)
            assert saved.read_bytes() == whole


@pytest.mark.parametrize("content", [b"", b"notes of mine", None])
def test_what_is_no_index_is_kept(tmp_path, capsys, content):
    path, saved = write(tmp_path / "x.npz"), tmp_path / "x.npz.faiss"
    if content is None:
        saved.mkdir()
    else:
        saved.write_bytes(content)
    assert search(path) == search(path, index=False)
    assert "is no index; it is not saved" in capsys.readouterr().err
    assert saved.is_dir() if content is None else saved.read_bytes() == content


def test_a_folder_that_cannot_be_written(tmp_path, capsys, monkeypatch):
    path = write(tmp_path / "x.npz")

    def refuse(_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(file_index, "replace_file", refuse)
    assert search(path) == search(path, index=False)
    assert "Permission denied; it is not saved" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scale": 1e37}, "too large for faiss"),
        ({"scale": 1e200, "dtype": np.float64}, "too large for faiss"),
        ({"scale": np.nan}, "NaN or infinite"),
        ({"scale": np.inf}, "NaN or infinite"),
        ({"width": 0}, "are empty"),
        ({"rows": 0}, "are empty"),
    ],
)
def test_numbers_that_would_end_the_process(tmp_path, change, message):
    path = write(tmp_path / "x.npz", **change)
    with pytest.raises(UserError, match=message):
        search(path)
    assert not (tmp_path / "x.npz.faiss").exists()


def test_a_large_query_of_a_network(tmp_path):
    path = write(tmp_path / "x.npz")
    for made, message in (
        (np.full((1, 4), 1e38, np.float32), "too large for faiss"),
        (np.ones((1, 5), np.float32), "have 5 numbers"),
    ):
        with pytest.raises(UserError, match=message):
            file_search.search_file(path, ["new.png"], 2, lambda *_, made=made: made, True)


@pytest.mark.parametrize("kind", ["HNSW8", "Flat", "PCA2,IVF5,Flat", "IVF5,SQ8"])
def test_a_chosen_index_is_saved_with_its_recall(tmp_path, monkeypatch, capsys, kind):
    path = write(tmp_path / "x.npz")
    rows = search(path, kind)
    first = capsys.readouterr().err
    assert first.startswith("the index finds ")
    assert len(rows) == 6
    monkeypatch.setattr(file_index, "_build_index", None)  # a call would raise
    assert search(path, kind) == rows
    assert capsys.readouterr().err == first


def test_recall_is_the_share_of_the_exact_neighbors(tmp_path, capsys):
    path = write(tmp_path / "x.npz", rows=331)  # of which every third is a sample
    search(path, "PCA1,Flat", rows=(3,), k=4)
    points = np.load(path)["embeddings"]
    centered = points - points.mean(axis=0)
    direction = np.linalg.eigh(centered.T @ centered)[1][:, -1]
    line = centered @ direction
    shares = []
    for row in range(0, 331, 3):
        exact = np.argsort(np.linalg.norm(points - points[row], axis=1))[1:5]
        near = np.argsort(np.abs(line - line[row]))[:5]
        shares.append(np.isin(exact, near).mean())
    assert capsys.readouterr().err.startswith(f"the index finds {np.mean(shares):.1%} of exact")


def test_an_index_of_another_kind_is_built_anew(indexed):
    path, saved = indexed
    before = saved.read_bytes()
    search(path, "HNSW8")
    other = saved.read_bytes()
    assert other != before
    search(path, "Flat")
    assert saved.read_bytes() not in (before, other)
    search(path)
    assert saved.read_bytes() == before


@pytest.mark.parametrize("kind", ["HNSW0", "IVF0,Flat", "PQ3", "IVF400,Flat", "IDMap,Flat", "that"])
def test_what_is_no_index_of_faiss(tmp_path, kind):
    path = write(tmp_path / "x.npz")
    with pytest.raises(UserError, match=f"index: '{kind}' (is no index of faiss|has a number 0)"):
        search(path, kind)
    assert not (tmp_path / "x.npz.faiss").exists()


@pytest.mark.parametrize("kind", ["HNSW1", "HNSW01_SQ8", "IVF5_HNSW1,Flat", "NSG2,Flat"])
def test_graphs_that_faiss_cannot_build(tmp_path, kind):
    path = write(tmp_path / "x.npz")
    with pytest.raises(UserError, match=f"index: '{kind}' .* too few links; give 4 or more"):
        search(path, kind)
    assert not (tmp_path / "x.npz.faiss").exists()


def test_no_query(tmp_path):
    with pytest.raises(UserError, match="query: there is none; give an image"):
        file_search.search_file(write(tmp_path / "x.npz"), [], 3, None)


def test_an_index_larger_than_the_memory(tmp_path, monkeypatch):
    def fail(*arguments):
        raise MemoryError

    monkeypatch.setattr(faiss, "index_factory", fail)
    with pytest.raises(UserError, match="index: 'HNSW9999' does not fit into memory"):
        search(write(tmp_path / "x.npz"), "HNSW9999")


@pytest.mark.parametrize("index", [False, True])
def test_lengths_that_differ_get_a_note(tmp_path, capsys, index):
    """Else neighbors by Euclidean distance are taken for those by cosine similarity."""
    unit = np.random.default_rng(0).standard_normal((1500, 4)).astype(np.float32)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    last_are_long = unit.copy()
    last_are_long[750:] *= 2  # more rows than are read
    files = {
        "unit": (unit, None),
        "half": (unit.astype(np.float16), None),
        "seven": (7 * unit, None),
        "features": (last_are_long, "note: lengths of embeddings are 1 to 2, and distances"),
    }
    labels = np.array(["a", "b", "c"] * 500)
    for name, (points, expected) in files.items():
        path = tmp_path / f"{name}.npz"
        np.savez(path, embeddings=points, labels=labels)
        file_search.search_file(path, [3], 2, None, index)
        of_search = " ".join(capsys.readouterr().err.split())
        file_classification.classify_file(path, [3], 2, None, index)
        for output in of_search, " ".join(capsys.readouterr().err.split()):
            assert ("lengths of embeddings" in output) == (expected is not None)
            assert (expected or "") in output
    pd.DataFrame({"embeddings": list(last_are_long)}).to_parquet(tmp_path / "x.parquet")
    file_search.search_file(tmp_path / "x.parquet", [3], 2, None)
    assert "lengths of embeddings are 1 to 2" in capsys.readouterr().err
    new = lambda names, _: 3 * unit[:1]  # noqa: E731
    file_search.search_file(tmp_path / "unit.npz", ["new.png"], 2, new)
    assert "lengths of embeddings are 1 to 3" in capsys.readouterr().err


def test_codes_get_no_note_on_lengths(tmp_path, capsys):
    points = np.random.default_rng(0).standard_normal((40, 8)).astype(np.float32)
    made = Compression.fit("int8", points, "")
    content = ImageEmbeddings(made.encode(points), np.arange(40), None, {}, compression=made)
    write_embeddings(tmp_path / "x.npz", content)
    file_search.search_file(tmp_path / "x.npz", [3], 2, None)
    assert "lengths of embeddings" not in capsys.readouterr().err


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("rows", [1, 2, 38, 39])
def test_an_index_of_few_rows_has_no_warning(tmp_path, capfd, rows):
    path = write(tmp_path / "x.npz", rows=rows)
    embed = lambda names, _: np.ones((1, 4), np.float32)  # noqa: E731
    _, table = file_search.search_file(path, ["new.png"], 1, embed, True)
    points = np.load(path)["embeddings"]
    assert table["row"].tolist() == [np.linalg.norm(points - 1, axis=1).argmin()]
    printed = capfd.readouterr()
    assert "nan" not in printed.err
    assert "WARNING" not in printed.err + printed.out
    assert ("the index finds 100.0%" in printed.err) == (rows > 1)


def test_a_gallery_that_is_not_searched_is_named(tmp_path, capsys):
    points = np.eye(6, dtype=np.float32)
    labels = np.array(list("aabbcc"))
    path = tmp_path / "x.npz"
    for arrays in {}, {"gallery_embeddings": points, "gallery_labels": labels}:
        np.savez(path, embeddings=points, labels=labels, **arrays)
        file_search.search_file(path, [0], 2, None)
        file_classification.classify_file(path, [0], 2, None)
        near_duplicates.find_near_duplicates(path)
        notes = capsys.readouterr().err.count("note: gallery_embeddings of")
        assert notes == 3 * len(arrays) / 2
