"""The suite `train` at a tiny size, and the parts of its figures."""

import pytest
import torch

from scripts.benchmarks import _roofline, train
from scripts.benchmarks._roofline import Work, count_work
from scripts.benchmarks._training_loops import PLAIN, Loop, Setting, Variant
from scripts.benchmarks.input import write_photos

SIZE, BATCH = 16, 4


@pytest.fixture(scope="module")
def setting(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    write_photos(folder, 6)
    return Setting("small_cnn", BATCH, SIZE, str(folder), "cpu")


def test_the_whole_suite_at_a_tiny_size(capsys, monkeypatch):
    monkeypatch.setitem(_roofline.SIDES, "cpu", 64)
    monkeypatch.setitem(_roofline.COPY_BYTES, "cpu", 2**16)
    train.main(
        [
            *("--network", "small_cnn", "--size", str(SIZE), "--batch", str(BATCH)),
            *("--images", "6", "--steps", "2", "--rounds", "1", "--workers", "0"),
            *("--only", "ours,+ channels_last,+ data.cache=full", "--models", "1", "--no-memory"),
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


def test_a_roof_is_counted_by_hand(setting):
    loop = Loop(setting, Variant("ours", 0))
    work = count_work(loop, "fp32")
    convolutions = 0
    channels, side = 3, SIZE
    for layer in [m for m in loop.embedder.modules() if isinstance(m, torch.nn.Conv2d)]:
        side //= layer.stride[0]
        weights = layer.weight.numel()
        # Forward, and backward to the weights; the first layer's images need no gradient.
        convolutions += 2 * weights * BATCH * side**2 * (2 if channels == 3 else 3)
        channels = layer.out_channels
    assert convolutions < work.flops < 1.3 * convolutions  # head and loss are the rest
    weights = 4 * sum(p.numel() for p in loop.embedder.parameters())
    assert work.bytes > 3 * weights
    assert Work(10.0, 4.0).images_per_second(2, flop_rate=5.0, byte_rate=1.0) == 0.5


def test_rows_that_do_not_exist_are_refused(capsys):
    with pytest.raises(SystemExit):
        train.main(["--only", "ours,bf16"])
    assert "--only: unknown bf16; choose from plain loop, ours" in capsys.readouterr().err
