"""Pictures of docs/concepts: python scripts/draw_concepts.py

Each is drawn from the code that it explains: splits, losses' potentials, the greedy k-center
algorithm, the stand-in glyphs. Takes the names of some of them, or draws all.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from clone import ROOT

from dml.cli.error_lines import report_errors
from dml.cli.parser import Parser, parse_path
from dml.core.atomic_io import output_folder
from dml.core.plain_text import print_plain
from dml.runs.figures.drawing import check_picture
from scripts.concepts import evaluation_pictures, method_pictures

CONCEPTS = ROOT / "docs" / "concepts"
PICTURES: dict[str, Callable[[Path], None]] = {
    name.removeprefix("draw_"): function
    for module in (evaluation_pictures, method_pictures)
    for name, function in vars(module).items()
    if name.startswith("draw_")
}


@report_errors
def main(argv: list[str] | None = None) -> int:
    """Returns the exit status, 0."""
    parser = Parser(__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=" | ".join(PICTURES))
    parser.add_argument("--out", type=parse_path, default=CONCEPTS, help="default: docs/concepts")
    parser.add_argument("--overwrite", action="store_true", help="replace any PNG")
    options = parser.parse(argv)
    unknown = set(options.names) - set(PICTURES)
    if unknown:
        parser.error(f"no picture {', '.join(sorted(unknown))}; choose from {', '.join(PICTURES)}")
    paths = {name: options.out / f"{name}.png" for name in options.names or PICTURES}
    if options.out.resolve() != CONCEPTS:  # the pictures of this repository
        for path in paths.values():
            check_picture(path, "--out", options.overwrite)
    output_folder(options.out)
    for name, path in paths.items():
        PICTURES[name](path)
        print_plain(f"picture  {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
