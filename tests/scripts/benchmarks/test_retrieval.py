import mmap

import pytest
import torch

from scripts.benchmarks import retrieval


@pytest.mark.parametrize("name", ["cub", "inshop", "sop"])
def test_labels_have_the_shape_of_the_test_set(name):
    size = retrieval.SIZES[name]
    for items in filter(None, (size.queries, size.gallery)):
        labels = retrieval.draw_labels(items, size, torch.Generator().manual_seed(0))
        counts = torch.bincount(labels, minlength=size.classes)
        assert len(labels) == items
        assert counts.max() == size.largest
        assert counts.min() >= 1


def test_the_whole_suite_at_a_tiny_size(monkeypatch, capsys):
    tiny = retrieval.Size(300, 0, 20, 30, 16, 1.0, (1, 5))
    split = retrieval.Size(200, 150, 20, 20, 16, 1.0, (1, 5))
    monkeypatch.setattr(retrieval, "SIZES", {"tiny": tiny, "split": split})
    monkeypatch.setattr(retrieval, "peak_memory", lambda name, size: 1.0)
    retrieval.main(["--sizes", "tiny,split", "--repeats", "1", "--backends", "torch", "--exact"])
    printed = capsys.readouterr().out
    assert printed.count("recall_at_5") == 2
    distances = [
        float(line.rsplit(" ", 1)[1]) for line in printed.splitlines() if "from the" in line
    ]
    assert len(distances) == 6
    assert max(distances[1:3] + distances[4:]) < 1e-9


def test_memory_is_watched():
    """Pages from the system, since a tensor may reuse memory that other tests released."""
    size = 40_000_000
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    with retrieval.PeakMemory() as peak:
        for _ in range(2):  # one after the other: the peak is that of one
            with mmap.mmap(-1, size, flags=private) as pages:
                pages.write(b"x" * size)
                retrieval.time.sleep(0.02)
    assert 0.9 * size / 1e6 < peak.above < 1.9 * size / 1e6
