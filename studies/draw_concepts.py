"""Pictures of docs/concepts: python studies/draw_concepts.py

Each is drawn from the code that it explains: splits, losses' potentials, the greedy k-center
algorithm, the stand-in glyphs. Takes the names of some of them, or draws all.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # this clone
from scripts import clone  # noqa: I001

from dml.cli.error_lines import report_errors
from dml.cli.parser import Parser, parse_path
from dml.core.atomic_io import output_folder
from dml.core.plain_text import print_plain

CONCEPTS = clone.ROOT / "docs" / "concepts"


@report_errors
def main(argv: list[str] | None = None) -> int:
    """Returns the exit status, 0."""
    parser = Parser(__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help="of a page of docs/concepts")
    parser.add_argument("--out", type=parse_path, default=CONCEPTS, help="default: docs/concepts")
    parser.add_argument("--overwrite", action="store_true", help="replace any PNG")
    options = parser.parse(argv)
    # Imported late: --help need not load torch.
    from dml.runs.figures.drawing import check_picture
    from studies.concepts.pictures import PICTURES

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
