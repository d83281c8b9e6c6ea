"""The suite `train` at a tiny size, and the parts of its figures."""

import warnings
from itertools import pairwise

import pytest
import torch

from scripts.benchmarks import _roofline, train
from scripts.benchmarks._measure import count_waits, read_timm_rates
from scripts.benchmarks._roofline import Work, count_work
from scripts.benchmarks._training_loops import PLAIN, Loop, Setting, Variant, ladder
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


def test_rates_of_timm_are_read_from_its_file(tmp_path):
    (tmp_path / "timm.csv").write_text(
        "model,train_samples_per_sec,train_step_time,train_batch_size,train_img_size\n"
        "resnet50,812.34,157.5,128,224\nvit_base_patch16_224,,,64,224\n"
    )
    assert read_timm_rates(str(tmp_path / "timm.csv")) == {("resnet50", 128): 812.34}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "No such file"),
        ("model,infer_samples_per_sec\nresnet50,812.34\n", "no column train_samples_per_sec"),
        ("train_samples_per_sec\nfast\n", "is no results file of timm"),
    ],
)
def test_a_wrong_file_of_timm_is_reported_before_measuring(text, message, capsys, tmp_path):
    if text is not None:
        (tmp_path / "timm.csv").write_text(text)
    with pytest.raises(SystemExit):
        train.main(["--timm", str(tmp_path / "timm.csv")])
    assert message in capsys.readouterr().err


def test_waits_are_counted_from_the_warnings_of_torch(monkeypatch):
    modes = []
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)

    def step():
        warnings.warn("called a synchronizing CUDA operation", stacklevel=1)
        warnings.warn("something else", stacklevel=1)

    assert count_waits(step, 3, "cuda") == 1
    assert modes == ["warn", "default"]
    assert count_waits(step, 3, "cpu") is None


def test_each_row_of_the_ladder_adds_an_option():
    for device, names in (("cpu", 6), ("cuda", 10)):
        rungs = ladder(device, 2, 8)
        assert len(rungs) == names
        for before, after in pairwise(rungs[1:]):
            changed = {k for k in vars(after) if vars(after)[k] != vars(before)[k]} - {"name"}
            assert len(changed) == 1, (before, after)


def test_loops_train(setting):
    for variant in (Variant(PLAIN, 0), Variant("ours", 0, precision="bf16", cache="full")):
        loop = Loop(setting, variant)
        before = [p.detach().clone() for p in loop.embedder.parameters()]
        spent = loop.advance(2)
        assert spent.steps == 2
        assert 0 < spent.waiting < spent.seconds
        moved = zip(before, loop.embedder.parameters(), strict=True)
        assert all(not torch.equal(old, new) for old, new in moved)


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


def test_operations_are_counted_by_kind(capsys):
    train.main(["--count", "--network", "small_cnn"])
    names, (_, total, *numbers) = map(str.split, capsys.readouterr().out.splitlines())
    counts = dict(zip(names[5:], map(int, numbers), strict=True))
    assert int(total) == sum(counts.values())
    assert counts["convolutions"] == counts["BatchNorm"] == 2 * 3  # forwards and backwards
    # All counters at once; a group each of backbone, head and loss, with its count of steps.
    assert (counts["counters"], counts["optimizer"]) == (1, 2 * 3)
    assert counts["products"] == 6


def test_rows_that_do_not_exist_are_refused(capsys):
    with pytest.raises(SystemExit):
        train.main(["--only", "ours,bf16"])
    assert "--only: unknown bf16; choose from plain loop, ours" in capsys.readouterr().err
