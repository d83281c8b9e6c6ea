import sys

import pytest
import torch

from dml.retrieval import nearest_neighbors


def test_missing_faiss_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ValueError, match="'faiss' needs the package"):
        nearest_neighbors(torch.zeros(3, 2), k=1, backend="faiss")
    assert nearest_neighbors(torch.zeros(3, 2), k=1).indices[0] == 1
