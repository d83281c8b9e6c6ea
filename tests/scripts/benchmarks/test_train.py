"""The suite `train` at a tiny size."""

import pytest

from scripts.benchmarks import _roofline, train
from scripts.benchmarks._training_loops import PLAIN

SIZE, BATCH = 16, 4


@pytest.mark.soak
def test_the_whole_suite_at_a_tiny_size(capsys, monkeypatch):
    monkeypatch.setitem(_roofline.SIDES, "cpu", 64)
    monkeypatch.setitem(_roofline.COPY_BYTES, "cpu", 2**16)
    train.main(
        [
            *("--network", "small_cnn", "--size", str(SIZE), "--batch", str(BATCH)),
            *("--images", "6", "--steps", "2", "--rounds", "1", "--workers", "0"),
            *("--only", "ours", "+ channels_last", "+ data.cache=full"),
        ]
    )
    lines = capsys.readouterr().out.splitlines()
    rows = [line for line in lines if "x" in line and "%" in line]
    assert [row[:32].strip() for row in rows] == [
        PLAIN,
        "ours",
        "+ channels_last",
        "+ data.cache=full",
    ]
    assert "1.00x" in rows[0]
    assert sum(line.startswith("roof in ") for line in lines) == 1
    assert not any("not possible" in line for line in lines)
