"""Files of other formats are named where a folder, a table or an `.npz` file is expected."""

import bz2
import gzip
import io
import lzma
import os
import pickle
import tarfile
import zipfile

import numpy as np
import pytest

from dml.core.errors import UserError
from dml.core.file_formats import describe_no_arrays, find_archive, find_table
from dml.data.readers.features import read_features
from dml.data.readers.folder import list_images, read_folder
from dml.retrieval.embedding_file import open_embeddings


def make_zip():
    with zipfile.ZipFile(packed := io.BytesIO(), "w") as archive:
        archive.writestr("a/1.png", b"pixels")
    return packed.getvalue()


def make_tar():
    with tarfile.open(fileobj=(packed := io.BytesIO()), mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a/1.png"))
    return packed.getvalue()


def make_npy():
    np.save(packed := io.BytesIO(), np.zeros(3))
    return packed.getvalue()


ARCHIVES = {
    "a.zip": (make_zip(), "a ZIP archive"),
    "a.tar": (make_tar(), "a tar archive"),
    "a.tar.gz": (gzip.compress(make_tar()), "a gzip archive"),
    "a.tar.bz2": (bz2.compress(make_tar()), "a bzip2 archive"),
    "a.tar.xz": (lzma.compress(make_tar()), "an xz archive"),
    "a.csv": (make_zip(), "a ZIP archive"),  # a spreadsheet that was renamed
}
TABLES = {
    "a.h5": (b"\x89HDF\r\n\x1a\n" + bytes(99), "an HDF5 file"),
    "a.parquet": (b"PAR1" + bytes(99), "a Parquet file"),
    "a.npy": (make_npy(), "a NumPy array (.npy)"),
    "a.pkl": (pickle.dumps([1]), "a pickle"),
    "a.mat": (b"MATLAB 5.0 MAT-file" + bytes(99), "a MATLAB file"),
}
FILES = ARCHIVES | TABLES


@pytest.fixture(params=FILES)
def file(tmp_path, request):
    path = tmp_path / request.param
    path.write_bytes(FILES[request.param][0])
    return path


@pytest.mark.parametrize("read", [read_folder, list_images])
def test_images_in_another_format(file, read):
    if file.suffix in (".tar", ".parquet"):
        pytest.skip("formats of images")
    kind = FILES[file.name][1]
    with pytest.raises(UserError) as caught:
        read(file)
    message = str(caught.value)
    assert f"{file}: it is {kind}" in message
    assert ("unpack it" in message) == (file.name in ARCHIVES)
    assert ("docs/own_code.md" in message) == (file.name in TABLES)


@pytest.mark.parametrize("read", [read_features, open_embeddings])
def test_arrays_in_another_format(file, read):
    if file.suffix == ".parquet" and read is open_embeddings:
        pytest.skip("a format of embeddings")
    with pytest.raises(UserError) as caught:
        read(file)
    assert f"it is {FILES[file.name][1]}" in str(caught.value)


def test_files_of_arrays_texts_and_absent_files_are_no_other_format(tmp_path):
    np.savez(tmp_path / "a.npz", embeddings=np.zeros((2, 2)))
    np.savez(tmp_path / "noted.npz", embeddings=np.zeros((2, 2)))
    with zipfile.ZipFile(tmp_path / "noted.npz", "a") as archive:
        archive.writestr("note.txt", "of a user")
    (tmp_path / "a.txt").write_text("1.png\n")
    (tmp_path / "short").write_bytes(b"P")
    os.mkfifo(tmp_path / "pipe.npz")  # nobody writes to it
    for name in ("a.npz", "noted.npz", "a.txt", "short", "pipe.npz", "absent", "."):
        assert describe_no_arrays(tmp_path / name) == ""
        assert find_table(tmp_path / name) == ""
        assert name.endswith(".npz") or find_archive(tmp_path / name) == ""
    with pytest.raises(UserError, match="data=features trains on features"):
        read_folder(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("array", "advice"),
    [
        (np.ones((2, 3), np.int8), "got int8 of shape .*astype\\('float32'\\) converts"),
        (np.ones((2, 3), np.complex64), "got complex64 of shape \\(2, 3\\)\\)$"),
        (np.array([[1], [2, 3]], object), "Python objects.*store it as numpy.array"),
    ],
)
def test_features_of_other_types_name_the_option_and_the_way_out(tmp_path, array, advice):
    np.savez(tmp_path / "a.npz", embeddings=array, labels=np.arange(2))
    with pytest.raises(UserError, match=f"^data.root: .*{advice}"):
        read_features(tmp_path / "a.npz")


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_an_npz_that_is_cut_off_is_no_archive_of_another_kind(tmp_path, share):
    np.savez(tmp_path / "x.npz", embeddings=np.random.default_rng(0).random((40, 8)))
    whole = (tmp_path / "x.npz").read_bytes()
    (tmp_path / "x.npz").write_bytes(whole[: int(share * len(whole))])
    for read in (open_embeddings, read_features):
        with pytest.raises(UserError, match="it is cut off or damaged; copy it again"):
            read(tmp_path / "x.npz")
    (tmp_path / "x.npz").write_bytes(whole)
    assert describe_no_arrays(tmp_path / "x.npz") == ""


def test_images_that_are_no_files_say_what_they_are(tmp_path):
    (tmp_path / "a.png").write_bytes(b"")
    os.symlink("gone.png", tmp_path / "b.png")
    with pytest.raises(UserError, match=r"1 of 2 .*b\.png is a link to a file that does not exist"):
        list_images(tmp_path)
    (tmp_path / "b.png").unlink()
    os.mkfifo(tmp_path / "b.png")
    with pytest.raises(UserError, match=r"1 of 2 .*b\.png is no regular file; remove it"):
        list_images(tmp_path)


@pytest.mark.parametrize("form", ["text", "paths", "csv"])
def test_images_that_are_listed_twice_are_refused(tmp_path, form):
    for name in "ab":
        (tmp_path / f"{name}.png").write_bytes(b"")
    listed = ["a.png", "b.png", "./a.png"]
    source = [f"{tmp_path}/{name}" for name in listed]
    if form != "paths":
        source = tmp_path / ("list.txt" if form == "text" else "list.csv")
        first = ["path"] if form == "csv" else []
        source.write_text("\n".join([*first, *listed]))
    with pytest.raises(UserError, match=r"a\.png is listed twice"):
        list_images(source)
