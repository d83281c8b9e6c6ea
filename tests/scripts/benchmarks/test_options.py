"""Wrong options of the benchmarks are refused before anything is measured."""

import pytest

from tests.scripts.loading import load_script

NUMBERS = {
    "checkpoints": ["--batch", "--size", "--steps", "--rounds"],
    "commands": ["--images", "--size", "--rounds"],
    "growth": ["--images", "--steps"],
    "input": ["--images", "--rounds"],
    "long_run": ["--steps", "--every"],
    "losses": ["--rounds"],
    "metrix": ["--classes", "--rounds"],
    "parquet": ["--images", "--kilobytes", "--shuffled"],
    "retrieval": ["--repeats"],
    "train": ["--batch", "--size", "--images", "--steps", "--rounds"],
}
FROM_ZERO = {"checkpoints": ["--step-ms"], "input": ["--workers"], "train": ["--workers"]}
WRONG = [
    *[(suite, name, "0") for suite, names in NUMBERS.items() for name in names],
    *[(suite, name, "-1") for suite, names in NUMBERS.items() for name in names],
    *[(suite, name, "-1") for suite, names in FROM_ZERO.items() for name in names],
    *[(suite, name, "1.5") for suite, names in FROM_ZERO.items() for name in names],
    ("input", "--images", "127"),
    ("train", "--images", "100"),
    ("growth", "--form", "photos"),
    ("commands", "--cases", "trains"),
    ("train", "--only", "our"),
    ("train", "--only", "\x1b[2J"),
    ("losses", "--cases", "\x1b[2J"),
    ("retrieval", "--kernels", "Zen"),
]


@pytest.mark.parametrize(("suite", "name", "value"), WRONG)
def test_wrong_options(suite, name, value, capsys):
    assert load_script("benchmark").main([suite, f"{name}={value}"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert name in captured.err.splitlines()[-1]
    assert "\x1b" not in captured.err
