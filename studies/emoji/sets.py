"""Nine published sets of emoji, listed in `sets.csv`: versions, checksums, licenses and credits.

They are the npm packages `@iconify-json/<name>`: the designers' drawings in one format (SVG).
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

# Licenses under which drawings may be part of pictures in papers and on pages, with a credit.
# CC BY-SA would ask for the same license of the whole picture.
PICTURE_LICENSES = ("Apache-2.0", "MIT", "CC-BY-4.0")


@dataclass(frozen=True)
class EmojiSet:
    """One set of drawings, at a fixed version.

    Attributes:
        name: of the package, and of the set in file names.
        version: of the package.
        sha256: of the package's archive.
        title, author: for credits.
        license: SPDX id.
        identified_by: `codes` (the package lists code points), `names` (the drawings have Unicode's
            names) or `table` (the drawings have names of their own, listed in a table of ours).
        newer: the set of the same designers that replaced this one; may be empty.
    """

    name: str
    version: str
    sha256: str
    title: str
    author: str
    license: str
    identified_by: str
    newer: str

    @property
    def package(self) -> str:
        """Name and version as npm takes them."""
        return f"@iconify-json/{self.name}@{self.version}"

    @property
    def archive(self) -> str:
        """Name of the file that npm makes of the package."""
        return f"iconify-json-{self.name}-{self.version}.tgz"

    @property
    def credit(self) -> str:
        """Title, author and license, as a caption names them."""
        return f"{self.title} ({self.author}, {self.license})"


with open(Path(__file__).with_name("sets.csv"), encoding="utf-8", newline="") as table:
    SETS = tuple(EmojiSet(**row) for row in csv.DictReader(table))
# Sets whose drawings our pictures may hold; `credit` is what their captions name.
PICTURE_SETS = tuple(one for one in SETS if one.license in PICTURE_LICENSES)
