import pytest
import torch

from dml.retrieval.exact.scaled_gallery import ScaledGallery
from dml.retrieval.inputs import check_embeddings
from tests.retrieval import reference


@pytest.mark.parametrize("case", reference.CASES)
def test_scores_are_as_accurate_as_claimed(case, generator):
    embeddings = check_embeddings(reference.CASES[case](generator), "embeddings")
    gallery = ScaledGallery(embeddings, embeddings, 64)
    query = gallery.queries(embeddings)
    found = (query @ gallery.rows.T)[:, gallery.row_of_item]
    exact = gallery.scaled(embeddings)
    expected = -0.5 * torch.cdist(exact, exact, compute_mode="donot_use_mm_for_euclid_dist") ** 2
    assert ((found - expected).abs() <= gallery.error(query[:, -1])[:, None]).all()
