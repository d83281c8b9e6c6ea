"""A saved W&B workspace that compares losses: python scripts/wandb_dashboard.py my-team

MAP@R, R-precision, Recall@1 and loss over epochs, one line per loss with a band over folds, repeats
and seeds; bars of the final scores; neighbors. For runs of `train.py … tracking=wandb`.
"""

from __future__ import annotations

import argparse
import json
import sys

import environment  # noqa: F401

from dml.core.errors import UserError
from dml.tracking.dashboard import as_json, build_workspace, save


def main(argv: list[str] | None = None) -> int:
    """Saves or prints the workspace; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("entity", help="user or team that the project belongs to")
    parser.add_argument("--project", default="dml-benchmark", help="(default: dml-benchmark)")
    parser.add_argument("--experiment", help="only its runs, for example mft_table1")
    parser.add_argument(
        "--by",
        default="run.result_id",
        help="option to compare (default: run.result_id, which is the loss with its method)",
    )
    parser.add_argument("--dry-run", action="store_true", help="print it as JSON, save nothing")
    options = parser.parse_args(argv)
    try:
        workspace = build_workspace(options.project, options.entity, options.experiment, options.by)
        print(json.dumps(as_json(workspace), indent=2) if options.dry_run else save(workspace))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
