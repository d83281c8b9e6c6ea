"""Nine published sets of emoji: versions, checksums, licenses and credits.

They are the npm packages `@iconify-json/<name>`: the designers' drawings in one format (SVG).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
        newer: the set of the same designers that replaced this one, if any.
    """

    name: str
    version: str
    sha256: str
    title: str
    author: str
    license: str
    identified_by: Literal["codes", "names", "table"]
    newer: str | None = None

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


SETS = (
    EmojiSet(
        "noto",
        "1.2.9",
        "3e918d88fc945c0bb3d468dbace6f88caef67f01c9f0e7bcae0915a042e8f1ad",
        "Noto Emoji",
        "Google",
        "Apache-2.0",
        "codes",
    ),
    EmojiSet(
        "twemoji",
        "1.2.5",
        "19046dff7d8707ce96212ec86468b36ac5f8e60409629dd13f809265c6d0ebb7",
        "Twemoji",
        "Twitter and contributors",
        "CC-BY-4.0",
        "codes",
    ),
    EmojiSet(
        "openmoji",
        "1.2.29",
        "03181e2c156cab35cf4a62f1f7886bd971d59212e75ac3f189d5a4cae3930fc5",
        "OpenMoji",
        "HfG Schwäbisch Gmünd and contributors",
        "CC-BY-SA-4.0",
        "codes",
    ),
    EmojiSet(
        "fluent-emoji-flat",
        "1.2.6",
        "7d064769dee690815f823bc5bcc511d957198caf9f5edd8dd9c1aa48a6aeb175",
        "Fluent Emoji",
        "Microsoft",
        "MIT",
        "codes",
    ),
    EmojiSet(
        "emojione",
        "1.2.3",
        "26a14f44284407e8bcde91799388dca2bfd91dbcd55a97f425524a1c5b73610e",
        "EmojiOne 2",
        "EmojiOne",
        "CC-BY-4.0",
        "names",
    ),
    EmojiSet(
        "fxemoji",
        "1.2.2",
        "f3e72b3c59d05e1db03b7e308d55c0d05bd7ba3f625a90da1b79313c12858eef",
        "Firefox OS Emoji",
        "Mozilla",
        "Apache-2.0",
        "table",
    ),
    EmojiSet(
        "noto-v1",
        "1.2.5",
        "2bf62c26c2c2884aa99e90aec942cdaee17a5921f05690694f4978ad4b017c37",
        "Noto Emoji 1",
        "Google",
        "Apache-2.0",
        "names",
        newer="noto",
    ),
    EmojiSet(
        "emojione-v1",
        "1.2.3",
        "6641d59d48a42823fdc2b84e7427e9f302944eb98d2c7d94d6e67c139e7b37b3",
        "EmojiOne 1",
        "EmojiOne",
        "CC-BY-SA-4.0",
        "names",
        newer="emojione",
    ),
    EmojiSet(
        "streamline-emojis",
        "1.2.4",
        "5dac87c876b322500989828c5823143e0100d78881627a2e4081a4b897cbfdbc",
        "Streamline Emojis",
        "Streamline",
        "CC-BY-4.0",
        "names",
    ),
)
# Sets whose drawings our pictures may hold; `credit` is what their captions name.
PICTURE_SETS = tuple(one for one in SETS if one.license in PICTURE_LICENSES)
