"""Formats of image files by the endings of their names: which are read, and which are not."""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from importlib.util import find_spec

from PIL import features

ALWAYS = (
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".apng", ".bmp", ".gif", ".tif", ".tiff", ".webp",
    ".ppm", ".pgm", ".pbm", ".pnm", ".tga", ".pcx", ".dds", ".qoi",
)  # fmt: skip
# By a codec that a build of Pillow may lack.
BY_CODEC = {"avif": (".avif",), "jpg_2000": (".jp2", ".j2k", ".jpf", ".jpx", ".j2c")}
HEIF, HEIF_PLUGIN = (".heic", ".heif"), "pillow_heif"
# Texts and databases beside images, which nobody takes for images.
COMPANIONS = (
    ".txt", ".md", ".csv", ".tsv", ".json", ".jsonl", ".xml", ".yaml", ".yml", ".html", ".pdf",
    ".db", ".ini", ".log", ".py", ".sh", ".mat", ".npy", ".npz", ".pkl", ".parquet",
)  # fmt: skip


@cache
def readable_suffixes() -> tuple[str, ...]:
    """Returns the endings of the files that are read, in lower case."""
    suffixes = list(ALWAYS)
    for codec, endings in BY_CODEC.items():
        if features.check(codec):
            suffixes += endings
    if find_spec(HEIF_PLUGIN) is not None:
        suffixes += HEIF
    return tuple(suffixes)


def is_readable(name: str) -> bool:
    """Returns whether a file is read as an image, by its name."""
    return name.lower().endswith(readable_suffixes())


def why_not_read(name: str) -> str | None:
    """Returns why a file that is not read is left out, by its name; None: it is no image."""
    suffix = os.path.splitext(name)[1].lower()
    if suffix in COMPANIONS or name.startswith("."):
        return None
    if suffix in HEIF:
        return f"{suffix}, which needs pip install pillow-heif"
    if not suffix:
        return "without an ending such as .jpg"
    return f"{suffix}, which is not read"


def advise(name: str) -> str:
    """Returns what else helps for a file that cannot be decoded, by its name; may be empty."""
    lacks_plugin = name.lower().endswith(HEIF) and find_spec(HEIF_PLUGIN) is None
    return "; pip install pillow-heif" if lacks_plugin else ""


def prepare_format(name: str) -> None:
    """Makes Pillow ready for a file, by its name: files of phones need a plugin."""
    if name.lower().endswith(HEIF) and find_spec(HEIF_PLUGIN) is not None:
        _register_heif()


@cache
def _register_heif() -> None:
    import_module(HEIF_PLUGIN).register_heif_opener()
