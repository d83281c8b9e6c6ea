import pytest
import torch

from dml.retrieval import nearest_neighbors, scaled_gallery
from dml.retrieval.cpu_search import scans
from dml.retrieval.cpu_search.running_top import RunningTop
from dml.retrieval.scaled_gallery import ScaledGallery
from tests.retrieval import reference


@pytest.mark.usefixtures("small_tiles")
def test_half_of_the_product_is_used_for_many_queries_of_their_own(generator, monkeypatch):
    sizes = []
    scores = ScaledGallery.scores

    def counted(self, query_nD, half_square_n, tile, out):
        sizes.append(out.numel())
        return scores(self, query_nD, half_square_n, tile, out)

    monkeypatch.setattr(ScaledGallery, "scores", counted)
    embeddings = torch.randn(640, 8, generator=generator)
    found = nearest_neighbors(embeddings, k=2)
    assert torch.equal(found.indices, reference.ranking(embeddings)[1][:, :2])
    assert sum(sizes) < 0.65 * 640**2
    sizes.clear()
    nearest_neighbors(embeddings, embeddings, k=2)
    assert sum(sizes) >= 640**2


def test_thresholds_that_were_too_high_are_noticed(generator, monkeypatch):
    # the best of the whole gallery all lie in the first tile: its sample is as unfair as can be
    monkeypatch.setattr(RunningTop, "_rank", lambda self, seen: 1)
    monkeypatch.setattr(scaled_gallery, "TILE", 64)
    seen = []
    scan = scans.scan_rows

    def watched(*arguments, cautious=False):
        seen.append(cautious)
        if cautious:
            monkeypatch.undo()
        return scan(*arguments, cautious=cautious)

    monkeypatch.setattr(scans, "scan_rows", watched)
    embeddings = torch.randn(256, 6, generator=generator)
    found = nearest_neighbors(embeddings, k=10)
    assert True in seen
    assert torch.equal(found.indices, reference.ranking(embeddings)[1][:, :10])
