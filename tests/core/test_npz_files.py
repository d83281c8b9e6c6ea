"""Headers of arrays are compared with the file before anything is read."""

import io
import zipfile

import numpy as np
import pytest

from dml.core import npz_files
from dml.core.errors import UserError
from dml.retrieval.embedding_file import open_embeddings
from dml.retrieval.embeddings import load_embeddings


def member(shape, held=b"", dtype="<f4"):
    """An array in bytes whose header announces a shape."""
    file = io.BytesIO()
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue() + held


def write(path, compression=zipfile.ZIP_STORED, **arrays):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in arrays.items():
            archive.writestr(f"{name}.npy", content)


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("name", ["embeddings", "labels", "paths"])
@pytest.mark.parametrize("shape", [(10**12, 4), (10**6,), (2**62, 2**62)])
def test_more_than_the_file_holds(tmp_path, compression, name, shape):
    path = tmp_path / "x.npz"
    arrays = {"embeddings": member((2, 4), bytes(32)), "labels": member((2,), bytes(16), "<i8")}
    write(path, compression, **arrays | {name: member(shape, bytes(32))})
    with pytest.raises(UserError, match=f"{name}: its header announces"):
        open_embeddings(path)
    if name != "paths":
        with pytest.raises(UserError, match=f"{name}: its header announces"):
            load_embeddings(path, "cpu")


def test_a_bomb(tmp_path, monkeypatch):
    monkeypatch.setattr(npz_files, "SMALL_BYTES", 1 << 20)
    path = tmp_path / "x.npz"
    write(path, zipfile.ZIP_DEFLATED, embeddings=member((2**19, 1), bytes(2**21)))
    with pytest.raises(UserError, match="would unpack to 2,097"):
        open_embeddings(path)


def test_compressed_files_are_read(tmp_path):
    points = np.random.default_rng(0).standard_normal((6, 3))
    for name, dtype in (("f16", np.float16), ("f64", np.float64), ("f128", np.longdouble)):
        np.savez_compressed(tmp_path / name, embeddings=points.astype(dtype), labels=np.arange(6))
        stored = open_embeddings(tmp_path / f"{name}.npz")
        np.testing.assert_allclose(stored.embeddings, points, rtol=1e-2, atol=1e-3)
        assert load_embeddings(tmp_path / f"{name}.npz", "cpu").query.shape == (6, 3)
