"""`evaluation.backend`: each search of the neighbors gives the same scores."""

import sys

import pytest

from dml.config.identity import digest
from dml.core.errors import ConfigError
from dml.runs import embeddings


@pytest.fixture
def backends(monkeypatch):
    """The backends that `retrieval_metrics` was called with."""
    used, retrieval_metrics = [], embeddings.retrieval_metrics

    def record(*arguments, backend, **options):
        used.append(backend)
        return retrieval_metrics(*arguments, backend=backend, **options)

    monkeypatch.setattr(embeddings, "retrieval_metrics", record)
    return used


def test_a_run_is_scored_by_the_backend(run_tiny, evaluated, backends):
    pytest.importorskip("faiss")
    expected, _ = run_tiny()
    assert set(backends) == {"auto"}
    backends.clear()
    summary, folder = run_tiny("evaluation.backend=faiss", "overwrite=true")
    assert set(backends) == {"faiss"}
    assert summary["metrics"] == expected["metrics"]

    result = evaluated(f"run={folder}", "save=float32")
    backends.clear()
    again = [
        evaluated(source, "evaluation.backend=faiss", given={name, "evaluation.backend"})
        for name, source in (
            ("run", f"run={folder}"),
            ("embeddings", f"embeddings={folder}/embeddings.npz"),
        )
    ]
    assert backends == ["faiss", "faiss"]
    assert again[0]["metrics"] == again[1]["metrics"] == result["metrics"]


def test_concatenated_models_are_scored_by_the_backend(run_small, backends):
    run_small("evaluation.backend=torch")
    assert set(backends) == {"torch"}


def test_the_backend_is_not_part_of_the_identity(composed):
    assert digest(composed("evaluation.backend=torch")) == digest(composed())


def test_faiss_that_is_not_installed_is_refused_in_one_line(run_tiny, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    message = r"^evaluation.backend: faiss is not installed: pip install faiss-cpu; .*$"
    with pytest.raises(ConfigError, match=message):
        run_tiny("evaluation.backend=faiss")
