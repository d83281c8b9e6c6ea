"""All our losses in code that is not ours: what users pass, copy, cast and save."""

from __future__ import annotations

import copy
import io

import numpy as np
import pytest
import torch
from torch import nn

from dml.losses import CentersRegularizer, MeanFieldNCALoss, PotentialFieldLoss
from tests.losses.all_losses import LOSSES, batch, value_and_gradients

INTEGERS = [
    *(torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
]


@pytest.fixture(params=LOSSES)
def loss(request: pytest.FixtureRequest) -> nn.Module:
    torch.manual_seed(0)
    return LOSSES[request.param]()


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_labels_of_any_integer_type(loss: nn.Module, dtype: torch.dtype) -> None:
    x, y = batch()
    assert torch.equal(loss(x, y.to(dtype)), loss(x, y))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8], ids=str)
def test_a_small_integer_type_counts_more_classes_than_it_holds(dtype: torch.dtype) -> None:
    loss = MeanFieldNCALoss(300, 5)
    x, y = batch()
    assert torch.equal(loss(x, y.to(dtype)), loss(x, y))


def test_unsigned_labels_out_of_range(loss: nn.Module) -> None:
    x, y = batch()
    y = y.to(torch.uint64)
    y[0] = 2**63 + 1
    with pytest.raises(ValueError, match="labels must be"):
        loss(x, y)


@pytest.mark.parametrize(
    "labels",
    [[0] * 9, np.zeros(9, dtype=int), torch.zeros(9, dtype=torch.bool), torch.zeros(9)],
    ids=["list", "numpy", "bool", "float"],
)
def test_refuses_labels_that_are_no_integer_tensor(loss: nn.Module, labels: object) -> None:
    with pytest.raises(ValueError, match="labels must be"):
        loss(batch()[0], labels)


def test_refuses_embeddings_that_are_no_tensor(loss: nn.Module) -> None:
    x, y = batch()
    with pytest.raises(ValueError, match="embeddings must be a tensor, got ndarray"):
        loss(x.numpy(), y)


@pytest.mark.parametrize("number", [np.int64(3), np.int32(3), np.uint8(3)], ids=repr)
def test_numpy_integers_are_sizes(number: int) -> None:
    loss = PotentialFieldLoss(number, number, number)
    assert loss.proxies.shape == (9, 3)
    assert CentersRegularizer(number).centers_per_class == 3


@pytest.mark.parametrize("number", [-1, 1.0, True, "2", None, np.float64(2)], ids=repr)
def test_refused_sizes_are_answered_with_the_true_range(number: object) -> None:
    with pytest.raises(ValueError, match="proxies_per_class must be an integer of at least 0"):
        PotentialFieldLoss(3, 4, number)
    with pytest.raises(ValueError, match="num_classes must be an integer of at least 1"):
        PotentialFieldLoss(number, 4, 2)


@pytest.mark.parametrize("number", ["0.5", None], ids=repr)
def test_refuses_hyperparameters_that_are_no_number(number: object) -> None:
    with pytest.raises(ValueError, match="alpha must be a finite number"):
        MeanFieldNCALoss(3, 4, number)


def test_copies_and_saved_states_are_the_same_loss(loss: nn.Module) -> None:
    x, y = batch()
    expected = value_and_gradients(loss, loss, x, y)
    file = io.BytesIO()
    torch.save(loss.state_dict(), file)
    file.seek(0)
    restored = copy.deepcopy(loss)
    for parameter in restored.parameters():
        nn.init.zeros_(parameter)
    restored.load_state_dict(torch.load(file, weights_only=True))
    for other in (copy.deepcopy(loss), restored, copy.deepcopy(loss).eval()):
        assert all(map(torch.equal, value_and_gradients(other, other, x, y), expected))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_loss_cast_to_half_precision_computes_in_float32(
    loss: nn.Module, dtype: torch.dtype
) -> None:
    x, y = batch()
    loss = loss.to(dtype)
    value, *gradients = value_and_gradients(loss, loss, x.to(dtype), y)
    exact = copy.deepcopy(loss).float()
    expected, *expected_gradients = value_and_gradients(exact, exact, x.to(dtype).float(), y)
    torch.testing.assert_close(value, expected, rtol=1e-6, atol=0)
    for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
        assert gradient.dtype == dtype
        torch.testing.assert_close(gradient.float(), expected_gradient, rtol=1e-2, atol=1e-3)


def test_one_image_and_zero_embeddings_are_finite(loss: nn.Module) -> None:
    x, y = batch()
    for images in (x[:1], torch.zeros_like(x[:1]), torch.zeros_like(x)):
        results = value_and_gradients(loss, loss, images, y[: len(images)])
        assert all(result.isfinite().all() for result in results)


def test_embeddings_without_gradient_train_the_parameters_alone(loss: nn.Module) -> None:
    x, y = batch()
    expected = value_and_gradients(loss, loss, x, y)
    value = loss(x, y)
    assert value.requires_grad == bool(list(loss.parameters()))
    if value.requires_grad:
        assert all(
            map(torch.equal, torch.autograd.grad(value, list(loss.parameters())), expected[2:])
        )
    loss.requires_grad_(False)
    x.requires_grad_()
    torch.testing.assert_close(torch.autograd.grad(loss(x, y), x)[0], expected[1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_autocast_is_off_backwards_too(loss: nn.Module, dtype: torch.dtype) -> None:
    """A loop that calls `backward()` inside autocast gets float32's gradients all the same."""
    x, y = batch()
    expected = value_and_gradients(loss, loss, x, y)
    with torch.autocast("cpu", dtype=dtype):
        actual = value_and_gradients(loss, loss, x, y)
    assert all(map(torch.equal, actual, expected))


def test_a_penalty_on_the_gradient_is_an_error_and_not_left_out(loss: nn.Module) -> None:
    x, y = batch()
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(loss(x.requires_grad_(), y), x, create_graph=True)


@pytest.mark.parametrize("name", ["cwms", "cbcont", "c1", "c2"])
def test_references_of_another_precision_raise_both_to_the_wider(name: str) -> None:
    torch.manual_seed(0)
    loss = LOSSES[name]()
    (x, y), (references, y_ref) = batch(), batch()
    expected = loss(x.double(), y, ref_emb=references.double(), ref_labels=y_ref)
    for pair in ((x.double(), references), (x, references.double())):
        value = loss(pair[0], y, ref_emb=pair[1], ref_labels=y_ref.short())
        torch.testing.assert_close(value, expected, rtol=1e-12, atol=0)
    half = loss(x, y, ref_emb=references.half(), ref_labels=y_ref)
    assert half.dtype == torch.float32
