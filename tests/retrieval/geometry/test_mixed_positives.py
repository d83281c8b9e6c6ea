import pytest
import torch

from dml.retrieval import geometry


def test_positivity_is_the_share_of_derivatives_that_are_not_positive():
    derivatives = torch.tensor([-1.0, 1.0, 0.0, 2.0, -3.0])
    lambdas = torch.tensor([0.1, 0.2, 0.3, 0.8, 1.0])
    shares = geometry.positivity(derivatives, lambdas, bins=3)
    assert shares[0] == 2 / 3
    assert shares[1].isnan()
    assert shares[2] == 1 / 2


def test_predicted_positivity_equals_the_sign_of_the_single_mix_derivative(generator):
    # ℓ̃ = log(1 + λ e^{−β(s−m)})/β + log(1 + (1−λ) e^{γ(s−m)})/γ
    beta, gamma, m = 18.0, 75.0, 0.77
    s = torch.rand(4000, generator=generator, dtype=torch.float64, requires_grad=True)
    lambdas = torch.rand(4000, generator=generator, dtype=torch.float64)
    positive = (lambdas * (-beta * (s - m)).exp()).log1p() / beta
    negative = ((1 - lambdas) * (gamma * (s - m)).exp()).log1p() / gamma
    (positive + negative).sum().backward()
    measured = geometry.positivity(s.grad, lambdas, bins=10)
    predicted = geometry.predicted_positivity(
        s.detach(), lambdas, beta=beta, gamma=gamma, margin=m, bins=10
    )
    assert torch.equal(measured, predicted)
    assert predicted[0] < predicted[-1]


def test_positivity_refuses_lambdas_outside_the_unit_interval():
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        geometry.positivity(torch.zeros(2), torch.tensor([0.5, 1.5]))
    with pytest.raises(ValueError, match="lambdas must have shape"):
        geometry.positivity(torch.zeros(2), torch.zeros(3))


def test_bins_must_be_a_count():
    with pytest.raises(ValueError, match="bins must be a positive integer"):
        geometry.positivity(torch.ones(2), torch.ones(2), 0)
