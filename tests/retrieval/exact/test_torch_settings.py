"""Work in several threads at once is exact, and leaves PyTorch's settings as they were."""

from threading import Barrier, Event, Thread

import pytest
import torch

from dml.core.torch_settings import fewer_threads, full_float32
from dml.data.decode import map_in_threads
from dml.retrieval import nearest_neighbors


@pytest.fixture
def bfloat16():
    """Products of float32 may be computed with fewer bits, by two threads."""
    before = torch.get_num_threads(), torch.get_float32_matmul_precision()
    torch.set_num_threads(2)
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_num_threads(before[0])
    torch.set_float32_matmul_precision(before[1])


def settings():
    """The precision, and the threads of this thread and of a new one."""
    found = []
    thread = Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    precision = torch.backends.mkldnn.matmul.fp32_precision
    return precision, torch.get_float32_matmul_precision(), torch.get_num_threads(), *found


def test_contexts_that_overlap(bfloat16):
    before = settings()
    first_has_begun, second_has_begun, first_has_ended = Event(), Event(), Event()
    seen = []

    def first():
        with full_float32(torch.device("cpu")), fewer_threads(1):
            first_has_begun.set()
            second_has_begun.wait(10)
        first_has_ended.set()

    def second():
        first_has_begun.wait(10)
        with full_float32(torch.device("cpu")), fewer_threads(1):
            second_has_begun.set()
            first_has_ended.wait(10)
            seen.append(torch.backends.mkldnn.matmul.fp32_precision)

    threads = [Thread(target=first), Thread(target=second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == ["ieee"]
    assert settings() == before


def test_images_that_are_decoded_by_two_threads(bfloat16):
    """The one that begins first ends first."""
    before = settings()
    second_has_begun, first_has_ended = Event(), Event()

    def decode():
        images = map_in_threads(abs, range(-100, 0))
        next(images)
        second_has_begun.set()
        first_has_ended.wait(10)
        images.close()

    first = map_in_threads(abs, range(-100, 0))
    assert next(first) == 100
    second = Thread(target=decode)
    second.start()
    second_has_begun.wait(10)
    assert sum(first) == sum(range(100))
    first_has_ended.set()
    second.join()
    assert settings() == before


def test_searches_in_several_threads(bfloat16):
    points = torch.randn(1500, 16, generator=torch.Generator().manual_seed(0))
    expected = nearest_neighbors(points, k=5).indices
    before = settings()
    start = Barrier(3)
    found = []

    def search():
        start.wait(10)
        for _ in range(4):
            found.append(nearest_neighbors(points, k=5).indices)

    threads = [Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 12
    assert all(torch.equal(indices, expected) for indices in found)
    assert settings() == before
