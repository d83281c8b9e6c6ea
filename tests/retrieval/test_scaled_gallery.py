import pytest
import torch

from dml.retrieval.exact_order import score_error
from dml.retrieval.inputs import check_embeddings
from dml.retrieval.scaled_gallery import ScaledGallery
from tests.retrieval import reference


@pytest.mark.parametrize("case", reference.CASES)
@pytest.mark.parametrize("squares", [False, True])
def test_scores_are_as_accurate_as_claimed(case, squares, generator):
    embeddings = reference.CASES[case](generator)
    embeddings = check_embeddings(embeddings, "embeddings")
    gallery = ScaledGallery(embeddings, embeddings, 64)
    query, half_square = gallery.center_queries(embeddings)
    found = torch.cat(
        [
            gallery.scores(query, half_square if squares else None, slice(first, first + 64), tile)
            for first in range(0, len(gallery.rows), 64)
            for tile in [torch.empty(len(query), 64)]
        ],
        dim=1,
    )[:, gallery.place[: len(embeddings)]]
    exact = (embeddings.double() - gallery.center) * gallery.scale
    expected = -0.5 * torch.cdist(exact, exact, compute_mode="donot_use_mm_for_euclid_dist") ** 2
    if not squares:
        expected += 0.5 * exact.square().sum(dim=1, keepdim=True)
    bound = score_error(exact.norm(dim=1), gallery.largest, embeddings.shape[1], 2.0**-24)
    assert ((found - expected).abs() <= bound[:, None]).all()
