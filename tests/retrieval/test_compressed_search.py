"""Neighbors among codes in blocks are those of all codes at once; files of codes are searched."""

import json

import numpy as np
import pytest

from dml.core.errors import UserError
from dml.data.readers.features import read_features
from dml.retrieval import compressed_search
from dml.retrieval.compressed_search import nearest_codes, nearest_signs
from dml.retrieval.compression import Compression
from dml.retrieval.embedding_file import ImageEmbeddings, open_embeddings, write_embeddings
from dml.retrieval.embeddings import load_embeddings
from dml.retrieval.file_classification import classify_file
from dml.retrieval.file_search import search_file
from dml.retrieval.near_duplicates import find_near_duplicates


def make_points(count=300, width=11, seed=0):
    random = np.random.default_rng(seed)
    points = random.normal(size=(count, width))
    points[count // 2 :] = points[: count - count // 2]  # ties
    return points.astype(np.float32)


@pytest.fixture(params=[32, 1 << 14])
def block(request, monkeypatch):
    monkeypatch.setattr(compressed_search, "BLOCK", request.param)
    monkeypatch.setattr(compressed_search, "QUERIES", 7)
    monkeypatch.setattr(compressed_search, "COMPARED", 5000)


@pytest.mark.parametrize("k", [1, 5, 299, 300])
def test_neighbors_of_int8_are_those_of_a_full_sort(block, k):
    points = make_points()
    made = Compression.fit("int8", points, "")
    codes, queries = made.encode(points), make_points(20, seed=1)
    rows, distances = nearest_codes(made, queries, codes, k)
    stored = made.decode(codes).astype(np.float64)
    for number, query in enumerate(queries.astype(np.float64)):
        apart = np.sqrt(((stored - query) ** 2).sum(axis=1))
        order = np.argsort(apart, kind="stable")[:k]
        assert rows[number].tolist() == order.tolist()
        assert distances[number] == pytest.approx(apart[order], rel=1e-12)


@pytest.mark.parametrize("m", [1, 40, 300])
def test_signs_are_ranked_by_hamming_distance_and_equal_ones_by_row(block, m):
    points = make_points()
    made = Compression.fit("binary", points, "")
    queries = make_points(20, seed=1)
    rows = nearest_signs(made, queries, made.encode(points), m)
    for number, query in enumerate(queries):
        differing = ((points > 0) != (query > 0)).sum(axis=1)
        assert rows[number].tolist() == np.argsort(differing, kind="stable")[:m].tolist()


@pytest.mark.parametrize("k", [3, 100, 150])
def test_the_nearest_signs_are_ranked_again_by_the_query(block, k):
    points = make_points(width=17)
    made = Compression.fit("binary", points, "")
    queries = made.make_queries(make_points(9, width=17, seed=1))
    rows, distances = nearest_codes(made, queries, made.encode(points), k)
    candidates = nearest_signs(made, queries, made.encode(points), max(k, 100))
    signs = np.where(points > 0, 1.0, -1.0)
    for number, query in enumerate(queries.astype(np.float64)):
        chosen = np.sort(candidates[number])
        apart = np.sqrt(((signs[chosen] - query) ** 2).sum(axis=1))
        order = np.argsort(apart, kind="stable")[:k]
        assert rows[number].tolist() == chosen[order].tolist()
        assert distances[number] == pytest.approx(apart[order], rel=1e-12)


@pytest.mark.parametrize("k", [0, 301])
def test_a_number_of_neighbors_that_there_are_not(k):
    points = make_points()
    made = Compression.fit("int8", points, "")
    with pytest.raises(ValueError, match="k must lie between 1 and 300"):
        nearest_codes(made, points, made.encode(points), k)


def write(path, name, points, labels=None):
    made = Compression.fit(name, points, "them")
    paths = np.arange(len(points)).astype(str)
    codes = made.encode(points)
    write_embeddings(path, ImageEmbeddings(codes, paths, labels, {}, compression=made))
    return made, codes


FORMS = ["int8", "binary", "float16", "pca5", "truncate5+int8"]


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
@pytest.mark.parametrize("name", FORMS)
def test_a_file_of_codes_is_read_searched_classified_and_evaluated(tmp_path, name, suffix):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    points, path = make_points(width=60), tmp_path / f"x{suffix}"
    labels = (np.arange(300) % 150 // 3).astype(str)  # a copy has the class of its original
    made, codes = write(path, name, points, labels=labels)
    decoded = made.decode(codes)
    stored = open_embeddings(path, decoded=False)
    assert stored.embeddings.dtype == codes.dtype
    assert np.array_equal(stored.embeddings, codes)
    assert np.array_equal(open_embeddings(path).embeddings.astype(np.float32), decoded)
    scored = load_embeddings(path, "cpu")
    assert np.array_equal(scored.query.numpy(), decoded)

    new = make_points(width=60, seed=1)[:1]
    _, table = search_file(path, [7, "new.jpg"], 4, lambda names, stored: new)
    queries = np.concatenate([decoded[7:8], made.make_queries(new)])
    rows, distances = nearest_codes(made, queries, codes, 5)
    nearest = [row for row in rows[0].tolist() if row != 7][:4] + rows[1, :4].tolist()
    assert table["row"].tolist() == nearest
    assert table["distance"][4:] == pytest.approx(distances[1, :4])
    assert table["duplicate"][0]  # the copy of row 7
    assert not table["duplicate"][3]

    _, same = search_file(path, ["new.jpg"], 2, lambda names, stored: points[9:10])
    assert sorted(same["row"]) == [9, 159]
    assert same["duplicate"].all()  # of the code, though a query is not rounded
    classes = classify_file(path, [7], 1, None)
    assert classes["neighbors"].tolist() == [labels[table["row"][0]]]
    assert find_near_duplicates(path, 1e-6).count >= 150


@pytest.mark.promise(
    "guides/smaller_vectors.md",
    "a file of `int8` or `binary` is searched with `--index`: one line says that it is "
    "searched without one",
)
@pytest.mark.parametrize("name", ["int8", "pca5+binary"])
def test_an_index_of_codes_is_refused(tmp_path, name):
    path = tmp_path / "x.npz"
    write(path, name, make_points())
    message = f"^index: .*x.npz holds vectors as {name.replace('+', '.')}, .*leave it out"
    with pytest.raises(UserError, match=message):
        search_file(path, [0], 1, None, index=True)
    with pytest.raises(UserError, match=message):
        find_near_duplicates(path, 0.1, index=True)
    assert not (tmp_path / "x.npz.faiss").exists()


def test_codes_do_not_train(tmp_path):
    path = tmp_path / "x.npz"
    write(path, "int8", make_points(), labels=(np.arange(300) // 3).astype(str))
    with pytest.raises(UserError, match="holds vectors as int8; embed the images without --compr"):
        read_features(path)


def test_a_query_of_another_width_is_a_line(tmp_path):
    path = tmp_path / "x.npz"
    write(path, "pca5+int8", make_points())
    with pytest.raises(UserError, match=r"of the network have 5 numbers, those of .*x\.npz 11"):
        search_file(path, ["new.jpg"], 1, lambda names, stored: np.ones((1, 5), np.float32))


@pytest.mark.promise(
    "guides/smaller_vectors.md",
    "the text `compression` of a file is damaged, or its codes have another type or width: "
    "the file is refused in one line",
)
@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
@pytest.mark.parametrize("damage", ["text", "width", "type", "rows"])
def test_damaged_files_are_refused_in_a_line(tmp_path, damage, suffix):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    points, path = make_points(), tmp_path / f"x{suffix}"
    made = Compression.fit("int8", points, "them")
    codes = made.encode(points)
    if damage == "text":
        content = json.loads(made.to_text()) | {"low": "AAAA"}
        object.__setattr__(made, "to_text", lambda: json.dumps(content))
    else:
        changes = {"width": codes[:, :-1], "type": codes.astype(np.float32), "rows": codes[:0]}
        codes = changes[damage]
    labels = np.zeros(len(codes), int).astype(str)
    paths = np.arange(len(codes)).astype(str)
    stored = ImageEmbeddings(codes, paths, labels, {}, compression=made)
    write_embeddings(path, stored)
    expected = "damaged|numbers of uint8 in a row|empty"
    with pytest.raises(UserError, match=rf"^embeddings: .*x\{suffix}.*({expected})"):
        open_embeddings(path)
    with pytest.raises(UserError, match=rf"^embeddings: .*x\{suffix}.*({expected})"):
        load_embeddings(path, "cpu")


def test_a_pickle_in_place_of_the_text_is_not_loaded(tmp_path):
    points, path = make_points(), tmp_path / "x.npz"
    codes = Compression.fit("int8", points, "").encode(points)
    text = np.array({"form": "int8"}, dtype=object)
    np.savez(path, embeddings=codes, labels=np.zeros(300, int), compression=text)
    for read in (open_embeddings, lambda path: load_embeddings(path, "cpu")):
        with pytest.raises(UserError, match=r"embeddings: .*x\.npz"):
            read(path)
