"""The product that is chosen: accurate, kept by processor and versions, and without effect."""

import json
import os
import pwd

import numpy as np
import pytest
import torch

from dml.core.blas_threads import count_threads, one_thread_a_product
from dml.retrieval import nearest_neighbors, retrieval_metrics
from dml.retrieval.exact import products, scaled_gallery
from dml.retrieval.exact.products import PRODUCTS, choose_product, is_accurate, measure_products


@pytest.fixture(autouse=True)
def nothing_known(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)
    monkeypatch.setattr(products, "_chosen", {})


@pytest.fixture
def measured(monkeypatch):
    """Widths that were measured; NumPy is the fastest."""
    widths = []
    monkeypatch.setattr(products, "measure_products", lambda width: widths.append(width) or "numpy")
    return widths


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("width", [1, 3, 130, 514])
def test_each_product_is_one_of_float32(name, width):
    a, b = np.random.default_rng(0).standard_normal((2, 40, width)).astype(np.float32)
    out = np.empty((40, 33), np.float32)
    PRODUCTS[name](a, b[:33], out)
    assert is_accurate(a, b[:33], out)
    np.testing.assert_allclose(out, a.astype(float) @ b[:33].T, atol=1e-4)


def test_products_of_fewer_bits_are_refused():
    a, b = np.random.default_rng(0).standard_normal((2, 64, 128)).astype(np.float32)
    bfloat16 = torch.from_numpy(a).bfloat16() @ torch.from_numpy(b).bfloat16().T
    assert not is_accurate(a, b, bfloat16.float().numpy())
    one_wrong = a @ b.T
    one_wrong[-1, 5] += 1
    assert not is_accurate(a, b, one_wrong)
    not_finite = a @ b.T
    not_finite[0, 0] = np.nan
    assert not is_accurate(a, b, not_finite)


def test_a_fast_library_that_is_wrong_is_not_chosen(monkeypatch):
    monkeypatch.setitem(PRODUCTS, "numpy", lambda a, b, out: out.fill(1))
    assert measure_products(130) == "torch"
    monkeypatch.setitem(PRODUCTS, "torch", lambda a, b, out: out.fill(1))
    assert measure_products(130) == "torch"  # of which the errors are bounded by its own tests


def test_a_choice_is_measured_once_and_kept(measured, monkeypatch):
    assert [choose_product(width) for width in (130, 130, 514)] == [PRODUCTS["numpy"]] * 3
    assert measured == [130, 514]
    monkeypatch.setattr(products, "_chosen", {})  # another process
    choose_product(514)
    assert measured == [130, 514]
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    choose_product(514)
    monkeypatch.setattr(np, "__version__", "9.9")
    choose_product(514)
    assert measured == [130, 514, 514, 514]


@pytest.mark.parametrize(
    "content",
    ["", "{", "[1]", json.dumps({"all": 3}), "[" * 10_000, '"x"', "\0"],
)
def test_a_damaged_file_is_written_anew(measured, content):
    path = products.cache_path()
    path.parent.mkdir(parents=True)
    path.write_text(content)
    choose_product(8)
    assert measured == [8]
    (widths,) = (part for part in json.loads(path.read_text()).values() if part != 3)
    assert widths == {"8": "numpy"}


@pytest.mark.parametrize("stored", ["other", 3, None, ["numpy"]])
def test_names_of_a_file_that_are_no_products(measured, stored):
    choose_product(8)
    path = products.cache_path()
    path.write_text(path.read_text().replace('"numpy"', json.dumps(stored)))
    products._chosen.clear()
    choose_product(8)
    assert measured == [8, 8]


def test_a_user_without_a_home(measured, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)  # KeyError
    assert choose_product(8) is PRODUCTS["numpy"]


def test_a_named_pipe_is_not_read(measured):
    path = products.cache_path()
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    assert choose_product(8) is PRODUCTS["numpy"]


def test_a_folder_that_cannot_be_written(measured, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert choose_product(8) is PRODUCTS["numpy"]


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("width", [2, 33])
def test_results_do_not_depend_on_the_product(width, split, monkeypatch):
    monkeypatch.setattr(scaled_gallery, "TILE", 32)
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(400, width, generator=generator)
    points[200:300] = points[:100]
    labels = torch.randint(0, 60, (400,), generator=generator)
    arguments = points, labels
    if split:
        arguments = points[:150], labels[:150], points[150:], labels[150:]
    results = []
    for name in PRODUCTS:
        monkeypatch.setattr(products, "measure_products", lambda width, name=name: name)
        products._chosen.clear()
        products.cache_path().unlink(missing_ok=True)
        scores = retrieval_metrics(*arguments, recall_at=(1, 100), reciprocal_rank=True)
        near = nearest_neighbors(*arguments[::2], k=20)
        results.append((scores, near.indices.tolist(), near.distances.tolist()))
    assert results[0] == results[1]


def test_contexts_that_overlap_restore_the_threads():
    before = count_threads()
    first, second = one_thread_a_product(), one_thread_a_product()
    first.__enter__()
    second.__enter__()
    assert count_threads() == 1
    first.__exit__(None, None, None)
    assert count_threads() == 1
    second.__exit__(None, None, None)
    assert count_threads() == before
