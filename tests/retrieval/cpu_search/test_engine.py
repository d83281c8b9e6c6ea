import pytest
import torch

from dml.retrieval import nearest_neighbors
from dml.retrieval.cpu_search import CpuSearch, engine, packing, scans
from dml.retrieval.cpu_search.running_top import RunningTop
from tests.retrieval import reference


def test_few_queries_are_work_for_all_workers(generator, monkeypatch):
    monkeypatch.setattr(engine, "worker_count", lambda *_: 3)
    seen = []
    propose = CpuSearch.propose

    def watched(self, query_nD, *rest):
        seen.append(len(query_nD))
        return propose(self, query_nD, *rest)

    monkeypatch.setattr(CpuSearch, "propose", watched)
    query, gallery = torch.randn(2, 100, 8, generator=generator)
    nearest_neighbors(query, gallery, k=3)
    assert sorted(seen) == [32, 34, 34]


@pytest.mark.usefixtures("small_tiles")
def test_few_queries_at_once_where_the_gallery_is_huge(generator, monkeypatch):
    """Beside millions of gallery rows an entry's number leaves fewer bits to its query."""
    monkeypatch.setattr(packing, "BITS", packing.SCORE_BITS + 12)
    seen = []
    monkeypatch.setattr(
        scans,
        "RunningTop",
        lambda queries, *a, **k: seen.append(queries) or RunningTop(queries, *a, **k),
    )
    embeddings = torch.randn(640, 8, generator=generator)  # 10 of the 12 bits
    found = nearest_neighbors(embeddings, k=7)
    assert torch.equal(found.indices, reference.ranking(embeddings)[1][:, :7])
    assert max(seen) <= 4
