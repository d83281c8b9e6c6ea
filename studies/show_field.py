"""Potential field of two classes in the plane: python studies/show_field.py

Draws Figure 2 of pfml: where charges of its own class attract a charge (blue) and charges of the
other class repel it (red), for each class.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # this clone
from scripts import clone  # noqa: F401, I001

from dml.cli.error_lines import report_errors
from dml.cli.parser import Parser, parse_path
from dml.core.atomic_io import output_folder
from dml.core.plain_text import print_plain

MOST_ALPHA = 100.0  # forces far above any in the paper, which float64 still holds


@report_errors
def main(argv: list[str] | None = None) -> int:
    """Returns the exit status, 0."""
    parser = Parser(__doc__)
    parser.add_argument("--alpha", type=float, default=4.0, help="decay of the forces, above 0")
    parser.add_argument("--delta", type=float, default=0.2, help="radius without attraction")
    parser.add_argument("--seed", type=int, default=0, help="seed of the charges")
    parser.add_argument(
        "--out", type=parse_path, default=Path("outputs/field.png"), help="PNG to write"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace any PNG")
    options = parser.parse(argv)
    # Imported late: --help need not load torch.
    from dml.runs.figures.drawing import check_picture
    from studies.potential_plot import EXTENT, draw_field

    for name, most in (("alpha", MOST_ALPHA), ("delta", EXTENT)):
        if not 0 < getattr(options, name) <= most:
            parser.error(f"--{name} is a number above 0, at most {most:g}")
    if not 0 <= options.seed < 2**63:
        parser.error("--seed is a whole number from 0 to 2**63 - 1")
    check_picture(options.out, "--out", options.overwrite)
    output_folder(options.out.parent)
    draw_field(options.out, alpha=options.alpha, delta=options.delta, seed=options.seed)
    print_plain(f"picture  {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
