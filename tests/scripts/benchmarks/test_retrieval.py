"""The peers of the retrieval benchmark compute what they are compared by."""

import os

import pytest

from scripts.benchmarks import _kernels, retrieval
from scripts.benchmarks.retrieval import Size, draw_embeddings, flat_metrics, reference_metrics


@pytest.mark.parametrize("gallery", [0, 150])
def test_a_flat_search_has_the_scores_of_the_float64_ranking(gallery):
    pytest.importorskip("faiss")
    size = Size(200, gallery, 20, 16, 12, 1.0, (1,))
    arguments = draw_embeddings(size)
    scores = flat_metrics(arguments)
    assert scores == pytest.approx(reference_metrics(arguments), abs=1e-6)
    assert scores == pytest.approx(
        {name: retrieval.compute_metrics("auto", arguments, size)[name] for name in scores},
        abs=1e-6,
    )


def test_a_kernel_is_named_to_new_processes_alone(monkeypatch):
    monkeypatch.setenv(_kernels.VARIABLE, "Prescott")
    with _kernels._environment("Haswell"):
        assert os.environ[_kernels.VARIABLE] == "Haswell"
    with _kernels._environment(_kernels.AUTOMATIC):
        assert _kernels.VARIABLE not in os.environ
    assert os.environ[_kernels.VARIABLE] == "Prescott"
