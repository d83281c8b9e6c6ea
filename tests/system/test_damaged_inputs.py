"""Damaged image lists, archives and embedding files are read, or refused in one line."""

import io
import random
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from dml.core.errors import UserError
from dml.data.cub import read_cub
from dml.data.folder import read_folder
from dml.data.inshop import read_inshop
from dml.data.sop import read_sop
from dml.data.unpack import unpack
from dml.runs.scores.embeddings_file import load_embeddings
from tests.data.trees import class_folders, cub_tree, inshop_tree, sop_tree
from tests.system.file_damage import BINARY, TEXT, damage_content

CASES = 40
SIZES = pytest.mark.parametrize("cases", [CASES])


def messages_of(cases: int, file: Path, kinds: tuple, work: Callable[[], object]) -> list[str]:
    """Damages a file in each case; returns the error messages, "" where the file was read."""
    content, found = file.read_bytes(), []
    for seed in range(cases):
        file.write_bytes(damage_content(random.Random(seed), content, kinds))
        try:
            work()
        except UserError as error:
            assert len(str(error).splitlines()) == 1, f"seed {seed}: {error}"  # noqa: PT017
            found.append(str(error))
        except Exception as error:
            pytest.fail(f"seed {seed}: {error!r}, from {file.read_bytes()[:300]!r}")
        else:
            found.append("")
    return found


TABLE = "path,label,split\n" + "".join(
    f"class_{label}/{item}.jpg,{label},{'train' if label < 2 else 'test'}\n"
    for label in range(4)
    for item in range(3)
)


@SIZES
def test_a_csv_file(cases, tmp_path):
    class_folders(tmp_path)
    file = tmp_path / "images.csv"
    file.write_text(TABLE)
    found = messages_of(cases, file, TEXT, lambda: read_folder(file))
    assert sum(message.startswith("data.root: ") for message in found) > cases / 2


@SIZES
@pytest.mark.parametrize(
    ("tree", "read", "name"),
    [
        (inshop_tree, read_inshop, "inshop/list_eval_partition.txt"),
        (sop_tree, read_sop, "Stanford_Online_Products/Ebay_train.txt"),
        (cub_tree, read_cub, "CUB_200_2011/images.txt"),
        (cub_tree, read_cub, "CUB_200_2011/image_class_labels.txt"),
    ],
)
def test_the_list_of_a_published_dataset(cases, tree, read, name, tmp_path):
    tree(tmp_path)
    found = messages_of(cases, tmp_path / name, TEXT, lambda: read(tmp_path, images=12, classes=4))
    assert sum(message.startswith("data.root: ") for message in found) > cases / 2


def _files() -> dict[str, bytes]:
    made = random.Random(0)
    names = [*(f"set/{letter}/{n}.txt" for letter in "abc" for n in range(3)), "set/ü ö.txt"]
    return {name: made.randbytes(600) + b"a" * 5000 for name in names}


def pack(kind: str, path: Path) -> Path:
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in _files().items():
                archive.writestr(name, content)
        return path
    with tarfile.open(path, f"w:{kind}" if kind else "w") as tar:
        for name, content in _files().items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


@SIZES
@pytest.mark.parametrize("kind", ["zip", "gz"])
def test_an_archive(cases, kind, tmp_path):
    folder = tmp_path / "inside" / "out"
    archive = pack(kind, tmp_path / f"set.{kind or 'tar'}")
    outside = sorted(tmp_path.rglob("*"))
    found = messages_of(cases, archive, BINARY, lambda: unpack(archive, folder))
    assert sum(str(archive) in message for message in found) > (cases / 5 if kind else 0)
    others = {path for path in tmp_path.rglob("*") if folder not in (path, *path.parents)}
    assert others <= {*outside, tmp_path / "inside"}


@SIZES
@pytest.mark.parametrize("save", [np.savez])
def test_an_embeddings_file(cases, save, tmp_path):
    file = tmp_path / "embeddings.npz"
    rng = np.random.default_rng(0)
    values = {name: rng.standard_normal((12, 4), np.float32) for name in ("", "gallery_")}
    arrays = {f"{name}embeddings": matrix for name, matrix in values.items()}
    save(file, **arrays, labels=np.arange(12) % 3, gallery_labels=np.arange(12) % 3)

    def scored():
        load_embeddings(file, torch.device("cpu")).score((1, 2))

    found = messages_of(cases, file, BINARY, scored)
    assert (
        sum(message.startswith(("embeddings: ", "evaluation: ")) for message in found) > cases / 3
    )
