"""Names and classes of a searched file are read for the rows that are shown, of any type."""

import subprocess
import sys

import numpy as np
import pytest

import dml
from dml.core.errors import UserError
from dml.retrieval.embedding_file import PARQUET, open_embeddings, open_for_search

ROWS = np.array([41, 3, 17])
TEXTS = np.array([f"photos/ü {row}.png" for row in range(60)])
COLUMNS = {
    "texts": TEXTS,
    "bytes": np.array([text.encode() for text in TEXTS]),
    "objects": TEXTS.astype(object),
    "numbers": np.arange(60)[::-1].copy(),
    "big-endian": np.arange(60).astype(">i2"),
    "column": TEXTS[:, None],
}


def write(path, save=np.savez, **columns):
    points = np.random.default_rng(0).standard_normal((60, 5)).astype(np.float32)
    if path.suffix == PARQUET:
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        table = {"embeddings": list(points)}
        for name, values in columns.items():
            table[name] = list(values.ravel())
        parquet.write_table(pyarrow.table(table), path, row_group_size=16)
    else:
        save(path, embeddings=points, **columns)
    return path


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("suffix", [".npz", PARQUET])
@pytest.mark.parametrize("name", ["paths", "labels"])
@pytest.mark.parametrize("kind", COLUMNS)
def test_texts_are_those_of_all_rows(tmp_path, kind, name, suffix, save):
    if (kind, suffix) in (("objects", ".npz"), ("bytes", PARQUET)):
        pytest.skip("refused as paths")
    path = write(tmp_path / f"x{suffix}", save, **{name: COLUMNS[kind]})
    read = getattr(open_embeddings(path), name)
    texts = getattr(open_for_search(path), name)
    assert texts[ROWS].tolist() == read[ROWS].tolist()
    assert texts.read_all().tolist() == read.tolist()


@pytest.mark.parametrize("suffix", [".npz", PARQUET])
def test_rows_without_names(tmp_path, suffix):
    file = open_for_search(write(tmp_path / f"x{suffix}"))
    assert file.paths[ROWS].tolist() == ["41", "3", "17"]
    assert file.labels is None


@pytest.mark.parametrize(
    "columns",
    [
        {"labels": TEXTS[:59]},
        {"paths": TEXTS[:59]},
        {"labels": np.stack([TEXTS, TEXTS], axis=1)},
        {"labels": np.full(60, np.nan)},
        {"labels": np.full(60, None)},
        {"paths": np.full(60, 0.5)},
    ],
)
def test_columns_that_are_refused_as_by_every_command(tmp_path, columns):
    path = write(tmp_path / "x.npz", **columns)
    with pytest.raises(UserError) as expected:
        open_embeddings(path)
    with pytest.raises(UserError) as raised:
        dml.search(path, [0], k=2)
    assert str(raised.value) == str(expected.value)


def test_damaged_texts_are_an_error_of_the_file(tmp_path):
    path = write(tmp_path / "x.npz", paths=TEXTS)
    content = path.read_bytes()
    start = content.index(TEXTS[0].encode("utf-32-le"))
    path.write_bytes(content[:start] + b"\xff" * 4 * 60 * 14 + content[start + 4 * 60 * 14 :])
    with pytest.raises(UserError, match="paths"):
        dml.search(path, [0], k=40)


def test_rows_are_searched_without_torch_and_pandas(tmp_path):
    path = write(tmp_path / "x.npz", labels=TEXTS)
    for words in ([path, "3", "--csv"], [path, "3", "4", "--classify"]):
        code = f"""
import sys
from dml.cli.program import main
main(["search", *{[*map(str, words)]}])
loaded = sorted({{"torch", "pandas", "scipy", "PIL", "hydra", "sklearn"}} & set(sys.modules))
print("loaded:", *loaded)
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.stdout.endswith("loaded:\n"), done
