"""Candidates: which queries are doubtful, and the exact neighbors."""

import pytest
import torch

from dml.retrieval.exact_search import ExactSearch
from dml.retrieval.full_search import FullSearch
from tests.retrieval import reference

K = 6


@pytest.mark.parametrize("spacing", [0.0, 1e-7, 1e-3])
@pytest.mark.parametrize("split", [False, True])
def test_what_is_not_doubtful_is_right(spacing, split, generator):
    """Candidates are sorted by float32 scores; near ties are those that float32 cannot order."""
    points = torch.randint(0, 3, (120, 3), generator=generator).double()
    points += spacing * torch.randn(120, 3, generator=generator).double()
    labels = torch.randint(0, 5, (120,), generator=generator)
    query, gallery = (points[:40], points[40:]) if split else (points, None)
    classes = (labels[:40], labels[40:]) if split else (labels, labels)
    search = ExactSearch(query, gallery, most=K)
    rows = torch.arange(len(query))
    with search._engine as engine:
        proposal = search._propose(engine, rows, K, classes)
        doubtful_n = proposal.is_doubtful(K)
        proposed_nk = classes[1][proposal.candidates.indices[:, :K]].clone()
        full = FullSearch(search.gallery, engine.gallery, K, engine.memory_bytes)
        resolved = proposal.resolve(search.gallery, full, K)
    expected = reference.ranking(query, gallery)[1][:, :K]
    relevant_nk = classes[1][expected] == classes[0][:, None]
    assert torch.equal(classes[1][resolved] == classes[0][:, None], relevant_nk)
    certain = ~doubtful_n
    found = proposed_nk[certain] == classes[0][certain, None]
    assert torch.equal(found, relevant_nk[certain])
    assert certain.any() or spacing < 1e-6
    assert doubtful_n.any() or spacing > 1e-6
