"""Proxies of ccp among two-dimensional embeddings: python studies/show_proxies.py digits

Draws Figure 2 of ccp: the converged proxies of each stage (squares), which cover their class better
from stage to stage, and the next ones (circles). --samples trains with the picked images in place
of proxies, so that the MAP@R of both can be compared (ccp, Section 5.3). Takes digits, glyphs, or
mnist --root FOLDER (with train-images-idx3-ubyte and train-labels-idx1-ubyte, plain or .gz).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # this clone
from scripts import clone  # noqa: F401, I001

from dml.cli.error_lines import report_errors
from dml.cli.parser import Parser, parse_path
from dml.core.atomic_io import output_folder
from dml.core.plain_text import print_plain


@report_errors
def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 on success, 1 on a mistake in the command."""
    parser = Parser(__doc__)
    parser.add_argument("data", choices=("digits", "glyphs", "mnist"))
    parser.add_argument(
        "--root", type=parse_path, default="data", help="folder of the dataset (default: data)"
    )
    parser.add_argument("--classes", type=int, default=10, help="number of classes (default: 10)")
    parser.add_argument("--stages", type=int, default=4, help="stages after the first (default: 4)")
    parser.add_argument("--samples", action="store_true", help="samples in place of proxies")
    parser.add_argument(
        "--out", type=parse_path, default=Path("outputs/proxies"), help="folder of the picture"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace any PNG")
    parser.add_argument("overrides", nargs="*", help="options of train.py, such as optim.lr=1e-3")
    options = parser.parse(argv)
    if options.classes < 2:
        parser.error("--classes is at least 2")
    if options.stages < 0:
        parser.error("--stages is at least 0")
    path = _draw(options)
    print_plain(f"picture  {path}")
    return 0


def _draw(options: argparse.Namespace) -> Path:
    # Imported late: --help need not load torch.
    from dml.config.check import check
    from dml.config.explain import compose_config
    from dml.runs.build import Builder
    from dml.runs.figures.drawing import check_picture
    from studies.mnist import read_mnist
    from studies.proxy_figure import OVERRIDES, SAMPLES, draw_proxy_figure

    path = options.out / f"{options.data}{'_samples' * options.samples}.png"
    check_picture(path, "--out", options.overwrite)
    data = "digits" if options.data == "mnist" else options.data  # the same kind of images
    own = (f"data={data}", f"data.root={options.root}", f"method.stages={options.stages + 2}")
    own += SAMPLES * options.samples
    cfg = compose_config("train", [*OVERRIDES, *own, *options.overrides])
    mnist = options.data == "mnist"
    index = read_mnist(options.root) if mnist else Builder(check(cfg)).index()
    output_folder(options.out)
    draw_proxy_figure(cfg, index, options.classes, path)
    return path


if __name__ == "__main__":
    sys.exit(main())
