"""Tiny archives in the layout of the nine emoji packages, and a renderer of their rectangles."""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from dml.core.download import Checksum
from dml.data.preparation.sources import DatasetSource
from dml.data.readers.emoji import read_emoji
from studies.emoji.build import EMOJI
from studies.emoji.codes import read_mozilla_table
from studies.emoji.drawings import RESVG
from studies.emoji.sets import SETS, EmojiSet

NAMES = {"1f34e": "red-apple", "1f415": "dog", "1f680": "rocket", "1f3c0": "basketball"}
GROUPS = {"Food & Drink": ["red-apple"], "Animals & Nature": ["dog"]}
RECTANGLE = re.compile(r'<rect x="(\d+)" y="(\d+)" width="(\d+)" height="(\d+)" fill="(\S+)"/>')


def rectangle(seed: str) -> str:
    """The body of a drawing on 32×32: a rectangle that differs from seed to seed."""
    x, y, width, height, *color = hashlib.sha256(seed.encode()).digest()[:7]
    place = f'x="{x % 16}" y="{y % 16}" width="{8 + width % 8}" height="{8 + height % 8}"'
    return f'<rect {place} fill="#{bytes(color).hex()}"/>'


@dataclass
class Package:
    """Content of a package: name of a drawing → body, code points → name."""

    one: EmojiSet
    bodies: dict[str, str]
    codes: dict[str, str] = field(default_factory=dict)

    def files(self) -> dict[str, Any]:
        icons = {name: {"body": body} for name, body in self.bodies.items()}
        return {
            "icons": {"icons": icons, "aliases": {}, "width": 32, "height": 32},
            "chars": self.codes,
            "metadata": {"categories": GROUPS},
        }


def packages(names: Mapping[str, str] = NAMES) -> dict[str, Package]:
    """All nine packages, each with a drawing of every emoji under the name that it would have."""
    mozilla = {code: name for name, code in read_mozilla_table().items()}
    made = {}
    for one in SETS:
        own = {
            code: mozilla[int(code, 16)] if one.identified_by == "table" else name
            for code, name in names.items()
        }
        bodies = {name: rectangle(f"{one.name} {name}") for name in own.values()}
        made[one.name] = Package(one, bodies, own if one.identified_by == "codes" else {})
    return made


def packed(folder: Path, made: Mapping[str, Package]) -> Path:
    """Writes the archives of the packages; returns the folder that holds them."""
    folder.mkdir(parents=True, exist_ok=True)
    for package in made.values():
        with tarfile.open(folder / package.one.archive, "w:gz") as tar:
            for stem, content in package.files().items():
                data = json.dumps(content).encode()
                entry = tarfile.TarInfo(f"package/{stem}.json")
                entry.size = len(data)
                tar.addfile(entry, BytesIO(data))
    return folder


def sha256_of(path: Path) -> Checksum:
    return Checksum("sha256", hashlib.sha256(path.read_bytes()).hexdigest())


def emoji_source(archives: Path, images: int = 36, classes: int = 4) -> DatasetSource:
    """The dataset with the checksums of the archives in a folder, and with other counts."""
    files = tuple(replace(file, checksum=sha256_of(archives / file.name)) for file in EMOJI.files)
    read = partial(read_emoji, images=images, classes=classes, fingerprint=None)
    return replace(EMOJI, files=files, read=read)


class Renderer:
    """The part of `resvg_py` that is used, for drawings of one rectangle."""

    __version__ = RESVG

    @staticmethod
    def svg_to_bytes(svg_string: str, background: str, width: int, height: int, **_: Any) -> bytes:
        picture = Image.new("RGBA", (width, height), background)
        found = RECTANGLE.search(svg_string)
        if found is not None:
            scale = width // 32
            x, y, w, h = (scale * int(number) for number in found.groups()[:4])
            ImageDraw.Draw(picture).rectangle((x, y, x + w - 1, y + h - 1), fill=found[5])
        content = BytesIO()
        picture.save(content, "PNG")
        return content.getvalue()
