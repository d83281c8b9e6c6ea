import gzip
import struct

import numpy as np
import pytest

from dml.core.errors import UserError
from scripts.studies.mnist import IMAGES, LABELS, read_mnist


def written(folder, count=5, labels=5, compressed=False):
    pixels = np.random.default_rng(0).integers(0, 256, (count, 4, 3), dtype=np.uint8)
    for name, shape, data in (
        (IMAGES, (count, 4, 3), pixels),
        (LABELS, (labels,), np.arange(labels, dtype=np.uint8)),
    ):
        content = struct.pack(f">{1 + len(shape)}I", 0x800 + len(shape), *shape) + data.tobytes()
        if compressed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)
    return pixels


@pytest.mark.parametrize("compressed", [False, True])
def test_images_and_labels_are_those_of_the_files(tmp_path, compressed):
    pixels = written(tmp_path, compressed=compressed)
    index = read_mnist(tmp_path)
    assert index.images.shape == (5, 4, 3, 3)
    assert (index.images[..., 1] == pixels).all()
    assert index.labels.tolist() == [0, 1, 2, 3, 4]


def test_missing_cut_or_mismatched_files_are_named(tmp_path):
    with pytest.raises(UserError, match=rf"data\.root: neither {IMAGES} nor"):
        read_mnist(tmp_path)
    written(tmp_path, labels=4)
    with pytest.raises(UserError, match="5 images but 4 labels"):
        read_mnist(tmp_path)
    for cut in (1, 50, 300):
        written(tmp_path)
        path = tmp_path / IMAGES
        path.write_bytes(path.read_bytes()[:-cut])
        with pytest.raises(UserError, match="is not a whole IDX file of 3 dimensions"):
            read_mnist(tmp_path)
    written(tmp_path, compressed=True)
    (tmp_path / IMAGES).unlink()
    (tmp_path / f"{IMAGES}.gz").write_bytes(b"no gzip")
    with pytest.raises(UserError, match="cannot be read"):
        read_mnist(tmp_path)
