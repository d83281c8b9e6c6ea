"""Command that exports the network of a run: `export.py`, `dml-export`."""

from __future__ import annotations

import argparse

from dml.cli.embed_command import add_model_options
from dml.cli.error_lines import report_errors
from dml.core.installation import shell_command

DESCRIPTION = """\
Exports the network of a run to a folder that dml.load and {embed} read without the run.

  {export} <run folder> my-net --onnx
  {export} <run folder> my-net --push <user>/<name>

Writes config.json, model.safetensors and README.md, a model card whose license is yours to fill in.
"""


@report_errors
def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 on success, 1 or 2 on a mistake, 130 interrupted."""
    parser = argparse.ArgumentParser(
        description=DESCRIPTION.format(
            embed=shell_command("embed"), export=shell_command("export")
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", help="run folder")
    parser.add_argument("folder", help="created if necessary")
    add_model_options(parser)
    parser.add_argument("--onnx", action="store_true", help="also write model.onnx")
    parser.add_argument(
        "--push", metavar="<user>/<name>", help="upload to the Hugging Face hub, private at first"
    )
    options = parser.parse_args(argv)
    from dml.runs import model_export  # imported late: --help need not load torch
    from dml.runs.load import export

    folder = export(options.run, options.folder, options.repeat, options.fold)
    print(model_export.write_card(options.run, folder))
    if options.onnx:
        difference = model_export.export_onnx(folder)
        checked = (
            "not checked: no onnxruntime" if difference is None else f"equal to {difference:.0e}"
        )
        print(f"{folder / model_export.ONNX}  {checked}")
    if options.push:
        print(model_export.push(folder, options.push))
    return 0
