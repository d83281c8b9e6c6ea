import hashlib
import zipfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dml.core.download import Checksum
from dml.data.readers.shapes import read_shapes
from studies.packages import prepare_packages
from studies.shapes import SHAPES

# A tetrahedron with edges along the axes, seen from outside counterclockwise.
FACES = ["f 1 3 2", "f 1 2 4", "f 1 4 3", "f 2 3 4 "]
LENGTHS = {"000": (1, 1, 1), "001": (3, 1, 1), "002": (1, 9, 1), "168": (1, "nan", 1)}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / SHAPES.files[0].name
    with zipfile.ZipFile(path, "w") as wheel:
        for name, (x, y, z) in LENGTHS.items():
            corners = ["# corners", "v 0 0 0", f"v {x} 0 0", f"v 0 {y} 0", f"v 0 0 {z}", "s off"]
            text = "\r\n".join([*corners, *FACES])
            wheel.writestr(f"pybullet_data/random_urdfs/{name}/{name}.obj", text)
    return path


def test_objects_are_rendered_in_views_that_differ(archive: Path, tmp_path: Path):
    checksum = Checksum("sha256", hashlib.sha256(archive.read_bytes()).hexdigest())
    source = replace(
        SHAPES,
        files=(replace(SHAPES.files[0], checksum=checksum),),
        read=partial(read_shapes, images=24, classes=2, fingerprint=None),
    )
    for name in ("one", "two"):
        prepare_packages(source, tmp_path / name, [archive])
    index = source.read(tmp_path / "one")
    assert index.roles.tolist() == ["train"] * 12 + ["test"] * 12
    assert {path.parent.name for path in index.images} < {"000", "001", "002"}
    contents = [path.read_bytes() for path in index.images]
    assert contents == [path.read_bytes() for path in source.read(tmp_path / "two").images]
    assert len(set(contents)) == 24
    for path in index.images:
        with Image.open(path) as image:
            pixels = np.asarray(image)
        assert pixels.shape == (128, 128)
        edge = [pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]]
        assert np.min(edge) == 255  # nothing is cut off
        assert (pixels < 255).mean() > 0.01
