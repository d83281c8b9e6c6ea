"""The regularizer of SoftTriple equals that of pytorch-metric-learning."""

import pytest
import torch
from pytorch_metric_learning import losses as pml
from pytorch_metric_learning.regularizers import SparseCentersRegularizer

from dml.losses import CentersRegularizer


@pytest.mark.parametrize("centers", [2, 3, 5])
def test_centers_regularizer_equals_pml_inside_soft_triple(centers: int) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(8, 5), torch.randint(0, 4, (8,))
    losses = [
        pml.SoftTripleLoss(4, 5, centers, weight_regularizer=regularizer, weight_reg_weight=0.2)
        for regularizer in (CentersRegularizer(centers), SparseCentersRegularizer(4, centers))
    ]
    losses[0].load_state_dict(losses[1].state_dict(), strict=False)
    values = [loss(x, y) for loss in losses]
    torch.testing.assert_close(values[0], values[1])
    plain = pml.SoftTripleLoss(4, 5, centers)
    plain.load_state_dict(losses[1].state_dict(), strict=False)
    assert values[0] > plain(x, y)


def test_centers_regularizer_stays_finite_where_centers_coincide() -> None:
    weights = torch.ones(6, 4, requires_grad=True)
    value = CentersRegularizer(3)(weights)
    value.backward()
    assert value.item() == pytest.approx(1e-6 / 2, rel=1e-3)
    assert weights.grad.isfinite().all()
    assert CentersRegularizer(1)(weights) == 0
