import gzip
import struct

import numpy as np
import pytest

from studies.mnist import IMAGES, LABELS, read_mnist


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
