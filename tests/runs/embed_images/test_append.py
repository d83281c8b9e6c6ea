"""`dml embed --append`: the file equals that of all images at once, whatever happened to them."""

import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from PIL import Image

import dml
from dml.core.errors import UserError
from dml.retrieval import file_index
from dml.retrieval.embedding_file import ImageEmbeddings, open_embeddings
from dml.runs.embed_images import append, new_file
from dml.runs.embed_images import rows as embedded_rows
from dml.runs.embed_images.merge import FileStates, join_rows, merge_rows

OPTIONS = ["backbone.input_size=32", "backbone.weights=none"]
NETWORK = "timm:test_resnet"


def draw(path, seed):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 255, (16, 16, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    long_ago = time.time() - 1000
    os.utime(path, (long_ago, long_ago))


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Twelve images of three classes, in the current folder."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "photos"
    for number in range(12):
        draw(folder / f"kind{number // 4}" / f"{number:02}.png", number)
    return folder


def embed(images="photos", output="x.npz", append=True, **more):
    options = more.pop("options", OPTIONS)
    return dml.embed(NETWORK, images, output, append=append, options=options, **more)


def check_equal(made, images="photos", **more):
    """Compares with all images at once, neighbors too."""
    expected = embed(images, "expected.npz", append=False, overwrite=True, **more)
    assert made.paths.tolist() == expected.paths.tolist()
    if expected.labels is None:
        assert made.labels is None
    else:
        assert made.labels.tolist() == expected.labels.tolist()
    np.testing.assert_allclose(made.embeddings, expected.embeddings, atol=1e-6)
    rows = [0, len(made.paths) - 1]
    files = ("x.npz", "expected.npz")
    found, at_once = (
        dml.search(file, rows, k=min(3, len(made.paths) - 1))["row"].tolist() for file in files
    )
    assert found == at_once


@pytest.fixture
def counted(monkeypatch):
    """Numbers of images that were embedded, of each call with any."""
    numbers = []
    embed_rows = embedded_rows.embed_rows

    def count(model, *more):
        numbers.append(len(model.index.images))
        return embed_rows(model, *more)

    monkeypatch.setattr(append, "embed_rows", count)
    monkeypatch.setattr(new_file, "embed_rows", count)
    return numbers


def test_new_changed_renamed_and_deleted_images(photos, counted, caplog):
    embed()
    embed()
    assert counted == [12]
    draw(photos / "kind0" / "00a.png", 50)  # between two of them
    draw(photos / "kind3" / "99.png", 51)
    draw(photos / "kind1" / "05.png", 52)  # replaced: another size, an old time
    (photos / "kind1" / "06.png").rename(photos / "kind2" / "06.png")
    (photos / "kind0" / "01.png").unlink()
    made = embed()
    assert counted == [12, 4]
    assert "append: 3 added, 1 embedded again, 2 dropped, 9 kept" in caplog.text
    check_equal(made)


ROOT = "root1"  # of the list
FILES = st.dictionaries(st.sampled_from("012345678"), st.integers(0, 2))  # name → its content


@st.composite
def stored_rows(draw):
    """Rows of three roots, in any order: name, root, content, and whether its time is known."""
    rows = {}
    for root in ("root0", ROOT, "root2"):
        for name, content in draw(FILES).items():
            rows.setdefault(name, (name, root, content, draw(st.booleans())))
    assume(rows)
    return draw(st.permutations([*rows.values()]))


def names_by_hand(rows, listed):
    """The names of the result: the list in place of the first row of its root."""
    of_others = {row[0] for row in rows if row[1] != ROOT}
    block = [name for name in listed if name not in of_others]
    names = []
    for name, root, *_ in rows:
        if root != ROOT:
            names.append(name)
        else:
            names += block
            block = []
    return names + block


@settings(max_examples=40, deadline=None)
@given(stored_rows(), FILES)
@example([("3", "root0", 1, True), ("4", "root2", 0, True)], {"5": 2})  # a new folder
def test_merged_rows_are_those_of_the_list_and_of_other_roots(rows, listed):
    expected = names_by_hand(rows, listed)
    assume(expected)
    paths, roots, contents, is_known = map(np.array, zip(*rows, strict=True))
    points = np.stack([paths.astype(float), contents], axis=1)
    old = ImageEmbeddings(
        points,
        paths,
        np.array([f"old{content}" for content in contents]),
        {"origin": "file"},
        roots=roots,
        file_sizes=np.full(len(rows), 7),
        file_times=np.where(is_known, contents, -1),
    )
    names, times = np.array([*listed], str), np.array([*listed.values()], int)
    states = FileStates(np.full(len(names), ROOT), np.full(len(names), 7), times, times)
    merge = merge_rows(old, names.tolist(), states, ROOT)

    stored = dict(zip(paths.tolist(), rows, strict=True))
    kept = {name for name, _, content, known in rows if known and listed.get(name) == content}
    assert merge.added == len(listed.keys() - stored.keys())
    assert merge.changed == len(listed.keys() & stored.keys() - kept)
    assert merge.dropped == len([1 for row in rows if row[1] == ROOT and row[0] not in listed])
    assert sorted(names[merge.embedded]) == sorted(listed.keys() - kept)

    embedded = np.stack([names.astype(float), times], axis=1)[merge.embedded][:, None]
    labels = np.array([f"new{content}" for content in times], str)
    made = join_rows(old, merge, embedded, names, labels, states, {})
    assert made.paths.tolist() == expected
    for row, name in enumerate(expected):
        content = listed[name] if name in listed else stored[name][2]
        source = "new" if name in listed else "old"
        assert made.embeddings[row].tolist() == [float(name), content]
        assert made.labels[row] == f"{source}{content}"
        assert made.roots[row] == stored.get(name, (name, ROOT))[1]
    assert ("origin" in made.made_by) == (len({*made.roots.tolist()}) > 1)


def test_a_changed_image_of_the_same_size(photos, counted):
    plain = photos / "kind0" / "a.bmp"
    for color in ("red", "blue"):
        Image.new("RGB", (16, 16), color).save(plain)  # as large, and within the same seconds
        made = embed()
    check_equal(made)
    assert counted[:2] == [13, 1]
    embed()
    assert counted[-1] == 1  # it is still too new to be told from a changed one
    os.utime(plain, (1, 1))
    embed()
    before = len(counted)
    embed()
    assert len(counted) == before


@pytest.mark.parametrize("output", ["x.npz", "x.parquet"])
def test_forms_of_files(photos, output):
    if output.endswith("parquet"):
        pytest.importorskip("pyarrow")
    more = {"dtype": "float16", "features": True, "views": 2}
    embed(output=output, **more)
    draw(photos / "kind3" / "99.png", 51)
    made = embed(output=output, **more)
    expected = embed(output="expected.npz", append=False, **more)
    np.testing.assert_allclose(made.embeddings, expected.embeddings, atol=2e-3)
    np.testing.assert_allclose(made.views, expected.views, atol=2e-3)  # new ones at the end
    assert made.embeddings.dtype == np.float16


def test_several_roots(photos, tmp_path, counted):
    for number in range(3):
        draw(tmp_path / "more" / "kind9" / f"{number}.png", 70 + number)
    embed("photos/../photos")
    embed("more")
    (photos / "kind0" / "00.png").unlink()
    made = embed("photos/../photos")
    assert (counted, len(made.paths)) == ([12, 3], 14)
    assert made.paths[-3:].tolist() == [f"more/kind9/{number}.png" for number in range(3)]
    draw(photos / "kind0" / "03.png", 80)
    names = embed("photos/../photos").paths.tolist()
    shutil.rmtree(photos)
    photos.mkdir()
    made = embed("photos/../photos")
    assert made.paths.tolist() == names[-3:]
    with pytest.raises(UserError, match=r"output: .* exists"):
        embed("more", append=False)  # it would lose rows of others
    shutil.rmtree(tmp_path / "more")
    (tmp_path / "more").mkdir()
    with pytest.raises(UserError, match="append: no image is left in more"):
        embed("more")
    assert len(open_embeddings("x.npz").paths) == 3


def test_a_list_and_an_image(photos, tmp_path, counted):
    table = tmp_path / "a.csv"
    table.write_text("path,label\nphotos/kind0/00.png,cup\nphotos/kind2/09.png,hat\n")
    embed("a.csv")
    table.write_text("path,label\nphotos/kind2/09.png,cap\nphotos/kind1/04.png,cup\n")
    check_equal(embed("a.csv"), "a.csv")
    assert counted[:2] == [2, 1]
    with pytest.raises(UserError, match="the file has labels, and the images have none"):
        embed("photos/kind0/01.png")
    embed("photos/kind0/01.png", "y.npz")
    made = embed("photos/kind0/02.png", "y.npz")
    assert made.paths.tolist() == ["photos/kind0/01.png", "photos/kind0/02.png"]
    draw(tmp_path / "alone.png", 60)
    embed("alone.png", "y.npz")
    with pytest.raises(UserError, match="the file has no labels, and the images have some"):
        embed("photos", "y.npz")


@pytest.mark.promise(
    "guides/use_your_network.md",
    "`dml embed --append` is interrupted: the file is as before, and the same command continues",
)
def test_an_interrupted_call_leaves_the_file_and_continues(photos, monkeypatch, counted):
    embed()
    for number in range(6):
        draw(photos / "kind4" / f"{number}.png", 90 + number)
    before = Path("x.npz").read_bytes()
    show = embedded_rows.show_progress

    def stop(batches, *more):
        yield next(iter(show(batches, *more)))
        raise KeyboardInterrupt

    monkeypatch.setattr(embedded_rows, "show_progress", stop)
    with pytest.raises(KeyboardInterrupt):
        embed(batch_size=2)
    assert Path("x.npz").read_bytes() == before
    passed = []

    def count(batches, *more):
        for images, labels in show(batches, *more):
            passed.append(len(images))
            yield images, labels

    monkeypatch.setattr(embedded_rows, "show_progress", count)
    made = embed(batch_size=2)
    assert passed == [2, 2]
    check_equal(made)


@pytest.mark.promise(
    "guides/use_your_network.md",
    "two `dml embed` commands write the same file: the second one is refused while the first runs",
)
def test_two_calls_at_the_same_time(photos, monkeypatch):
    """The second would read the file before the rows of the first are in it."""
    embed()
    draw(photos / "kind3" / "00.png", 95)
    refused = []
    list_again = append.list_again

    def list_meanwhile(*more):
        images = list_again(*more)
        if not refused:
            refused.append(True)
            before = Path("x.npz").read_bytes()
            for options in ({}, {"append": False, "overwrite": True}):
                with pytest.raises(UserError, match="is being written by process"):
                    embed(**options)
            assert Path("x.npz").read_bytes() == before
        return images

    monkeypatch.setattr(append, "list_again", list_meanwhile)
    check_equal(embed())
    assert refused
    assert not Path(".x.npz.partial").exists()
    with pytest.raises(UserError):
        embed("photos/none")
    assert not Path(".x.npz.partial").exists()


def test_the_index_follows(photos, monkeypatch):
    faiss = pytest.importorskip("faiss")
    embed()
    dml.search("x.npz", [0], k=2, index=True)
    draw(photos / "kind0" / "00a.png", 50)
    draw(photos / "kind1" / "05.png", 52)
    (photos / "kind2" / "10.png").unlink()
    made = embed()
    monkeypatch.setattr(file_index, "_build_index", None)  # a call would raise
    for row in range(12):
        exact, found = (dml.search("x.npz", [row], k=11, index=i)["row"] for i in (False, True))
        assert found.tolist() == exact.tolist()
    index = faiss.read_index("x.npz.faiss")
    index.make_direct_map()
    np.testing.assert_array_equal(index.reconstruct_n(0, 12), made.embeddings)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": True, "dtype": "float16"}, "dtype|features"),
        ({"dtype": "float16"}, "append: dtype of x.npz is float32, and would be float16"),
        ({"views": 1}, "append: views"),
        ({"options": [*OPTIONS, "data.background=black"]}, "append: options"),
        ({"options": ["backbone.input_size=48", "backbone.weights=none"]}, "append: options"),
        ({"images": ["photos/kind0/00.png"]}, "append: images must be a folder"),
        ({"images": "data=digits"}, "append: images must be a folder"),
        ({"overwrite": True}, "append: --overwrite replaces"),
        ({"images": "photos/none"}, "photos/none does not exist"),
    ],
)
def test_refused(photos, change, message):
    embed()
    before = Path("x.npz").read_bytes()
    with pytest.raises(UserError, match=message):
        embed(**change)
    assert Path("x.npz").read_bytes() == before


def test_files_of_others_and_another_network(photos, tmp_path):
    np.savez("y.npz", embeddings=np.ones((3, 4)), file_sizes=np.array([{}], object), roots=[1])
    with pytest.raises(UserError, match="does not say of which folders"):
        embed(output="y.npz")
    embed()
    with pytest.raises(UserError, match="was made by timm:test_resnet, not by timm:test_vit"):
        dml.embed("timm:test_vit", "photos", "x.npz", append=True, options=OPTIONS[1:])
    with pytest.raises(UserError, match="the file names images of this folder as photos/kind0"):
        embed(tmp_path / "photos")


def test_a_file_with_thumbnails_is_not_left_without_them(photos):
    embed(output="x.parquet", append=False, thumbnails=16)
    draw(photos / "kind0" / "new.png", 90)
    for more in ({}, {"thumbnails": 16}):
        with pytest.raises(UserError, match="thumbnails and neighbors are those of all images"):
            embed(output="x.parquet", **more)


@pytest.mark.parametrize("output", ["x.npz", "x.parquet"])
@pytest.mark.parametrize("form", ["int8", "pca4+binary", "truncate8"])
@pytest.mark.promise(
    "guides/smaller_vectors.md",
    "images are appended to a compressed file: they are stored as its rows are, by what was fitted "
    "when it was made; another form is refused in one line",
)
def test_new_rows_of_a_compressed_file_are_stored_as_the_old_ones(photos, form, output):
    embed(output=output, compress=form)
    before = open_embeddings(output, decoded=False)
    draw(photos / "kind0" / "00a.png", 99)
    made = embed(output=output, compress=form)
    after = open_embeddings(output, decoded=False)
    assert after.compression.to_text() == before.compression.to_text()
    assert len(made.paths) == 13
    row = made.paths.tolist().index("photos/kind0/00a.png")
    plain = embed(output=None, append=False)
    assert np.array_equal(np.delete(after.embeddings, row, 0), before.embeddings)
    codes = before.compression.encode(plain.embeddings[row : row + 1])
    # Batches of other sizes round in another way, by up to a step of int8.
    expected = after.compression.decode(codes)
    np.testing.assert_allclose(after.decode(slice(row, row + 1)), expected, atol=1e-2)
    others = {"int8": "binary", "pca4+binary": None, "truncate8": "truncate9"}
    with pytest.raises(UserError, match=f"append: compress of {output} is {form[:5]}"):
        embed(output=output, compress=others[form])


def test_a_plain_file_is_not_appended_to_in_fewer_bytes(photos):
    embed()
    with pytest.raises(UserError, match=r"compress of x\.npz is not set, and would be int8"):
        embed(compress="int8")
