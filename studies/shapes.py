"""Preparation of data=shapes: the objects `random_urdfs` of pybullet, rendered without pybullet.

Only the archive of the package is needed, so that any system and version of Python can render them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.spatial.transform import Rotation

from dml.core.download import Checksum
from dml.core.progress import show_progress
from dml.data.preparation.sources import DatasetSource, SourceFile
from dml.data.readers.shapes import read_shapes
from studies.packages import write_table

COLUMNS = ("label", "role", "object", "view", "obj_sha256")
SIDE = 256  # pixels of a drawing, whose size is then halved
DISTANCE = 3.0  # of the camera from the center, in radii of the object
ZOOM = 0.47 * (DISTANCE**2 - 1) ** 0.5  # the sphere around an object takes 94 % of the side
# Fixed to the camera, from the upper left: with a light fixed to the world, the brightness of an
# image would tell the side of the camera, and the dark half of the views would hardly show shape.
LIGHT = np.array([-1, 1, 2]) / 6**0.5
CORNERS = Rotation.create_group("T").apply((0, 1, (1 + 5**0.5) / 2))  # of an icosahedron


def build_shapes(folder: Path) -> None:
    """Builds the dataset in `folder/shapes` from the package unpacked in `folder/package`.

    Two objects are left out: 168, whose corners are not numbers, and the last of an odd number.
    """
    objects = folder / "package/pybullet_data/random_urdfs"
    contents = {path.stem: path.read_bytes() for path in objects.glob("*/*.obj")}
    shapes = {name: _read_triangles(content) for name, content in contents.items()}
    # Ordered by a hash, which is the same on every machine.
    names = sorted(
        (name for name, triangles in shapes.items() if np.isfinite(triangles).all()),
        key=lambda name: hashlib.sha256(f"shapes {name}".encode()).digest(),
    )
    half = len(names) // 2
    rows = []
    for label, name in enumerate(show_progress(names[: 2 * half], "rendering shapes", 2 * half)):
        about = label, "train" if label < half else "test", name
        digits = hashlib.sha256(contents[name]).hexdigest()[:16]
        place = folder / "shapes" / "images" / name
        place.mkdir(parents=True)
        for view, axes in enumerate(_cameras(int(name))):
            _render(shapes[name] @ axes.T).save(place / f"{view:02}.png")
            rows.append((*about, f"{view:02}", digits))
    write_table(folder / "shapes", COLUMNS, rows)


def _read_triangles(content: bytes) -> np.ndarray:
    """Returns the triangles (F×3×3) of an OBJ file, within a sphere of radius 1 around 0."""
    lines = [line.split() for line in content.decode().splitlines()]
    corners = np.array([words[1:] for words in lines if words[:1] == ["v"]], float)
    faces = np.array([words[1:4] for words in lines if words[:1] == ["f"]], int) - 1
    corners -= (corners.max(0) + corners.min(0)) / 2
    return (corners / np.linalg.norm(corners, axis=1).max())[faces]


def _cameras(seed: int) -> Iterator[np.ndarray]:
    """Yields the axes (right, up, backwards) of cameras at the corners of a turned icosahedron.

    Neighboring cameras are 63° apart, and each object is seen from other sides than the next one.
    All cameras stand upright, as those of photos do.
    """
    # NumPy guarantees the numbers of RandomState for all its versions.
    turn = Rotation.from_quat(np.random.RandomState(seed).normal(size=4))
    for corner in turn.apply(CORNERS):
        backwards = corner / np.linalg.norm(corner)
        right = np.cross((0, 0, 1), backwards)
        right /= np.linalg.norm(right)
        yield np.stack([right, np.cross(backwards, right), backwards])


def _render(triangles: np.ndarray) -> Image.Image:
    """Draws triangles (F×3×3, in the camera's axes) in a single gray on white, with a z-buffer."""
    near = 1 / (DISTANCE - triangles[..., 2:])  # linear in the image, unlike the depth
    points = SIDE * (0.5 + ZOOM * near * triangles[..., :2] * (1, -1)) - 0.5
    matrices = np.concatenate([points, np.ones_like(near)], axis=2)
    seen = np.linalg.det(matrices) < -1e-6  # the others are seen from behind, or edge-on
    normals = np.cross(*np.diff(triangles[seen], axis=1).swapaxes(0, 1))
    grays = 115 * (1 + normals @ LIGHT / np.linalg.norm(normals, axis=1))
    # Columns: three barycentric coordinates and `near`, as linear functions of (x, y, 1).
    inverse = np.linalg.inv(matrices[seen])
    planes = np.concatenate([inverse, inverse @ near[seen]], axis=2)
    starts = np.ceil(points[seen].min(1)).astype(int)
    stops = np.floor(points[seen].max(1)).astype(int) + 1
    image, buffer = np.full((SIDE, SIDE), 255, np.uint8), np.zeros((SIDE, SIDE))
    grid = np.arange(SIDE)[:, None]
    for plane, start, stop, gray in zip(planes, starts, stops, grays, strict=True):
        x, y = map(slice, start, stop)
        values = plane[0] * grid[x] + plane[1] * grid[y, None] + plane[2]
        front = (values.min(2, initial=0) > -1e-9) & (values[..., 3] > buffer[y, x])
        buffer[y, x][front] = values[..., 3][front]
        image[y, x][front] = round(gray)
    return Image.fromarray(image).reduce(2)


SHAPES = DatasetSource(
    "shapes",
    "shapes",
    (
        SourceFile(
            "pybullet-3.2.7-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
            "pip download pybullet==3.2.7 --no-deps --only-binary=:all: --python-version=3.11 "
            "--platform=manylinux2014_x86_64",
            Checksum("sha256", "5d858abf7c12a21ef3ed351cf81dac1b5e486ec25c9ab59bfc84beb89034edff"),
            into="package",
        ),
    ),
    read_shapes,
    build=build_shapes,
)
