"""Neighbors of unseen emoji before and after training: python studies/draw_emoji.py <run folder>

Draws the first model of a finished run with data=emoji into docs/results/emoji_neighbors.png, with
drawings that may be shown only. The picture in docs/results/README.md shows the shortest training
of the first search of proxy_anchor in the study networks_emoji:

    python studies/compare.py networks_emoji data --arms proxy_anchor
    python studies/draw_emoji.py outputs/studies/networks_emoji/proxy_anchor/0/24/single/*/seed0*

data/README.md says how to prepare the drawings, docs/networks.md where the weights come from.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # this clone
from scripts import clone  # noqa: F401, I001

from dml.cli.error_lines import report_errors
from dml.cli.parser import Parser, parse_path
from dml.core.plain_text import print_plain
from studies.emoji.sets import PICTURE_SETS

PICTURE = Path("docs/results/emoji_neighbors.png")
CREDIT = "; ".join(one.credit for one in PICTURE_SETS)


@report_errors
def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 on success, 1 on a mistake in the command."""
    parser = Parser(__doc__)
    parser.add_argument("run", type=parse_path, help="folder of a finished run")
    parser.add_argument("--out", type=parse_path, default=PICTURE)
    parser.add_argument("--trust", action="store_true", help="the run may name any class")
    parser.add_argument("--overwrite", action="store_true", help="replace any PNG")
    options = parser.parse(argv)
    # Imported late: --help need not load torch.
    from dml.runs.figures.drawing import check_picture
    from studies.emoji.neighbors import draw_emoji_neighbors

    if options.out != PICTURE:  # that of this repository
        check_picture(options.out, "--out", options.overwrite)
    draw_emoji_neighbors(options.run, options.out, options.trust)
    print_plain(f"written  {options.out}\ncredit   {CREDIT}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
