"""Pictures of single settings of the pilots: python scripts/explain_claims.py metrix

    metrix              the pull of the mixed loss on similarities of positives and negatives,
                        along the training of contrastive
    mean_field          learning curves on few and many classes
    potential_field     learning curves by decay α and radius δ of the forces, with distances of
                        proxies and classes
    chance_constraints  learning curves with and without proxies by positive margin, with radius
                        and distance of classes
    emoji               neighbors before and after training, by a finished run of claims_emoji;
                        writes emoji_neighbors.png

    claims_<subject>    the page of a pilot: scores and curves of its finished runs

The first four write why_<subject>.png and .csv, with the settings of experiment=claims_<subject>;
they take minutes on one core. Trainings are stored in outputs/explanations and continue.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import environment  # noqa: F401

from dml.cli.error_lines import report_errors
from dml.core.atomic_io import output_folder
from dml.core.errors import UserError
from dml.results.catalog import experiment_ids, list_cells
from scripts.studies.emoji.neighbors import CREDIT, draw_emoji_neighbors
from scripts.studies.mixing_pull import explain_mixing
from scripts.studies.pilot_page import write_pilot_page
from scripts.studies.variants import EXPLANATIONS, explain

PILOTS = [id for id in experiment_ids() if id.startswith("claims_") and id != "claims_pretraining"]
STEPS, EVERY = 600, 25  # of the training with Metrix


@report_errors
def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 on success, 1 on a mistake in the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("subject", choices=("metrix", *EXPLANATIONS, "emoji", *PILOTS))
    parser.add_argument("overrides", nargs="*", help="options of train.py, such as optim.lr=3e-4")
    parser.add_argument("--out", type=Path, default=Path("docs/results"), help="folder")
    options = parser.parse_intermixed_args(argv)
    out = options.out / f"why_{options.subject}.png"
    output_folder(options.out)
    if options.subject == "metrix":
        words = ["loss=contrastive", "method=plain", "optim.lr=1e-3", *options.overrides]
        explain_mixing(list_cells("claims_metrix", words)[0], STEPS, EVERY, out)
    elif options.subject == "emoji":
        out = options.out / "emoji_neighbors.png"
        _draw_emoji(options.overrides, out)
    elif options.subject in PILOTS:
        out = write_pilot_page(list_cells(options.subject, options.overrides), options.out)
    else:
        explain(options.subject, out, options.overrides)
    print(f"written  {out}")
    return 0


def _draw_emoji(overrides: list[str], out: Path) -> None:
    words = ["loss=proxy_anchor", "method=plain", "data.label_noise=0.0", *overrides]
    cell = list_cells("claims_emoji", words)[0]
    if not (cell.folder / "summary.json").is_file():
        raise UserError(f"not run yet: {cell.command}")
    draw_emoji_neighbors(cell.folder, out)
    print(f"credit   {CREDIT}")


if __name__ == "__main__":
    sys.exit(main())
