"""Gradients of small depthwise convolutions are those of PyTorch, and only they are replaced."""

from unittest import mock

import pytest
import torch
from torch import nn

from studies.comparison import depthwise


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


SHAPES = [  # kernel, stride, padding, rows, columns
    (3, 1, 1, 2, 2),
    (5, 1, 2, 2, 2),
    (5, 1, 2, 4, 4),
    (5, 2, 0, 7, 7),
    (5, 2, 2, 4, 3),
    (3, 2, 1, 5, 2),
    (3, 3, 2, 1, 9),
    (7, 1, 3, 1, 1),
    (1, 1, 0, 4, 4),
]


@pytest.mark.parametrize(("kernel", "stride", "padding", "rows", "columns"), SHAPES)
def test_the_gradient_of_the_weights(kernel, stride, padding, rows, columns, generator):
    images = torch.randn(3, 6, rows, columns, dtype=torch.float64, generator=generator)
    weight = torch.randn(6, 1, kernel, kernel, dtype=torch.float64, generator=generator)
    weight.requires_grad_()
    output = nn.functional.conv2d(images, weight, None, stride, padding, 1, 6)
    gradient = torch.randn(output.shape, dtype=torch.float64, generator=generator)
    output.backward(gradient)
    found = depthwise.weight_gradient(images, gradient, weight, (stride,) * 2, (padding,) * 2)
    torch.testing.assert_close(found, weight.grad)


def gradients(network, images):
    """The output of a network and the gradients of its weights and its input."""
    images = images.clone().requires_grad_()
    output = network(images)
    wanted = [images, *(weights for weights in network.parameters() if weights.requires_grad)]
    return output, torch.autograd.grad(output.sin().sum(), wanted)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("frozen", [True, False])
def test_a_network(bias, frozen, generator):
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, stride=2),
        nn.Conv2d(8, 8, 5, padding=2, groups=8, bias=bias),
        nn.Conv2d(8, 8, (3, 5), padding=(1, 2), groups=8, bias=bias),
        nn.Conv2d(8, 4, 1),
    ).to(memory_format=torch.channels_last)
    network[1].weight.requires_grad_(not frozen)
    images = torch.randn(2, 3, 8, 8, generator=generator)
    expected, of_expected = gradients(network, images)
    usual = nn.Conv2d._conv_forward
    computed = mock.Mock(wraps=depthwise.weight_gradient)
    with (
        mock.patch.object(depthwise, "is_slow_processor", return_value=True),
        mock.patch.object(depthwise, "weight_gradient", computed),
        depthwise.faster_depthwise(),
    ):
        found, of_found = gradients(network, images)
    assert computed.call_count == 2 - frozen
    assert nn.Conv2d._conv_forward is usual
    torch.testing.assert_close(found, expected)
    for one, other in zip(of_found, of_expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv2d(4, 4, 3, padding=1, groups=4), (1, 4, 5, 5)),  # large maps
        (nn.Conv2d(4, 4, 3, padding=1), (1, 4, 2, 2)),
        (nn.Conv2d(4, 8, 3, padding=1, groups=4), (1, 4, 2, 2)),
        (nn.Conv2d(1, 1, 3, padding=1), (1, 1, 2, 2)),
        (nn.Conv2d(4, 4, 3, padding=2, groups=4, dilation=2), (1, 4, 2, 2)),
        (nn.Conv2d(4, 4, 3, padding="same", groups=4), (1, 4, 2, 2)),
        (nn.Conv2d(4, 4, 3, padding=1, groups=4, padding_mode="reflect"), (1, 4, 2, 2)),
        (nn.Conv2d(4, 4, 3, padding=1, groups=4).double(), (1, 4, 2, 2)),
        (nn.Conv2d(4, 4, 3, padding=1, groups=4), (4, 2, 2)),  # without a batch
    ],
)
def test_other_layers_stay(layer, shape):
    images = torch.rand(shape, dtype=layer.weight.dtype)
    with (
        mock.patch.object(depthwise, "is_slow_processor", return_value=True),
        mock.patch.object(depthwise.DepthwiseConvolution, "apply", side_effect=AssertionError),
        depthwise.faster_depthwise(),
    ):
        layer(images).sum().backward()


def test_a_processor_with_avx512_keeps_all():
    usual = nn.Conv2d._conv_forward
    with mock.patch("torch.backends.cpu.get_cpu_capability", return_value="AVX512"):
        with depthwise.faster_depthwise():
            assert nn.Conv2d._conv_forward is usual
        assert not depthwise.is_slow_processor()
