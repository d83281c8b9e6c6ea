"""Numbers and names that no suite of benchmarks can measure end in a line of its parser."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[3] / "scripts"))  # its `clone`
from scripts import benchmark


@pytest.mark.parametrize(
    "line",
    [
        *("losses --rounds 0", "losses --rounds nan", "losses --rounds 9999999999"),
        *("metrix --classes 1", "metrix --rounds -1", "retrieval --repeats 0"),
        *("input --images 127", "input --workers -1", "input --rounds 1.5"),
        *("checkpoints --batch 1", "checkpoints --steps 0", "checkpoints --step-ms -1"),
        *("train --batch 1", "train --images 0", "train --rounds 0", "train --only nope"),
    ],
)
def test_what_cannot_be_measured(capsys, line):
    assert benchmark.main(line.split()) == 2
    assert line.split()[1] in capsys.readouterr().err.splitlines()[-1]
