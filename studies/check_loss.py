"""Ranks your loss among the losses of a comparison: docs/results/heads_emoji.md

    python studies/check_loss.py features.npz loss._target_=my_losses.MyLoss +loss.margin=0.2
    python studies/check_loss.py features.npz loss=hist
    python studies/check_loss.py features.npz loss=hist --quick    a first look, no evidence

Trains only this loss, with two searches like those of the study; the scores of the other losses
are those of the study. `make features.npz` makes the features, in about three minutes.
Options are those of train.py: `'+space.loss.margin={low:0,high:1}'` is searched.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # this clone
from scripts import clone  # noqa: F401, I001

from dml.cli.error_lines import report_errors
from dml.cli.parser import Parser, parse_path
from dml.core.names import check_name


@report_errors
def main(argv: list[str] | None = None) -> int:
    """Returns 0."""
    parser = Parser(__doc__)
    parser.add_argument("features", type=parse_path, help="file of make features.npz")
    parser.add_argument("options", nargs="+", metavar="option=value", help="of train.py")
    parser.add_argument("--name", help="of the row of your loss (default: its class or config)")
    parser.add_argument(
        "--quick", action="store_true", help="one search of three trials: about two core-minutes"
    )
    parser.add_argument(
        "--outputs",
        type=parse_path,
        default=Path("outputs/check_loss"),
        help="folder of runs and page (default: outputs/check_loss)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace any page of this name")
    options = vars(parser.parse(argv))
    # Imported late: --help need not load torch.
    from studies.comparison.check import check_loss, list_titles, name_loss
    from studies.comparison.page import check_page

    options["name"] = options["name"] or name_loss(options["options"])
    check_name(options["name"], "--name")
    if not options.pop("overwrite"):
        name = options["name"]
        check_page(options["outputs"], f"{name}_page", *list_titles(name))
    check_loss(**options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
