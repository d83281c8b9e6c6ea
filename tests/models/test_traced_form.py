"""Height and width of a traced form are free only where other sizes agree with PyTorch."""

from importlib.util import find_spec
from math import inf, nan

import pytest
import torch
from torch import nn

from dml.core.errors import UserError
from dml.models.traced_form import make_exported, make_onnx

needs_onnx = pytest.mark.skipif(
    find_spec("onnxruntime") is None, reason="onnxruntime is not installed"
)
FORMS = [pytest.param(make_onnx, marks=needs_onnx), make_exported]
forms = pytest.mark.parametrize("make", FORMS, ids=["onnx", "exported"])


class Net(nn.Module):
    """Embeds by a convolution, with what depends on the size of the image or of the batch."""

    def __init__(self, case):
        super().__init__()
        self.case, self.layer = case, nn.Conv2d(3, 4, 3, padding=1)
        self.flat = nn.Linear(3 * 8 * 8, 4)

    def forward(self, x):
        if self.case == "large" and x.shape[-1] > 16:
            x = 2 * x
        if self.case == "small" and x.shape[-2] < 8:
            x = x + 1
        if self.case == "oblong" and x.shape[-1] != x.shape[-2]:
            x = x.square()
        if self.case == "flat":
            return self.flat(x.flatten(1))
        if self.case == "batch" and len(x) > 5:
            x = 3 * x
        return self.layer(x).mean(dim=(2, 3))


@forms
@pytest.mark.parametrize(
    ("case", "free"),
    [("plain", True), ("large", False), ("small", False), ("oblong", False), ("flat", False)],
)
def test_sizes_that_are_free(make, case, free):
    torch.manual_seed(0)
    form = make(Net(case).eval(), 8, 8, may_be_free=True)
    assert form.is_free is free
    assert form.difference <= 1e-5
    assert not make(Net("plain").eval(), 8, 8, may_be_free=False).is_free


@needs_onnx
def test_a_network_that_depends_on_the_batch():
    with pytest.raises(UserError, match=r"onnx: differs from PyTorch by .* of 8x12 pixels"):
        make_onnx(Net("batch").eval(), 8, 12, may_be_free=True)


def test_a_program_of_a_network_that_depends_on_the_batch():
    with pytest.raises(UserError, match=r"^torch_export: this network has no such form: "):
        make_exported(Net("batch").eval(), 8, 12, may_be_free=True)


@needs_onnx
@pytest.mark.parametrize(
    ("free", "axes"), [(True, ["batch", 3, "height", "width"]), (False, ["batch", 3, 8, 8])]
)
def test_input_output_and_axes_have_names(free, axes):
    graph = make_onnx(Net("plain").eval(), 8, 8, may_be_free=free).program.model.graph
    (images,), (embeddings,) = graph.inputs, graph.outputs
    assert (images.name, embeddings.name) == ("images", "embeddings")
    names = [getattr(axis, "value", axis) for axis in images.shape]
    assert names == axes
    assert [getattr(axis, "value", axis) for axis in embeddings.shape] == ["batch", 4]


@forms
@pytest.mark.parametrize(("largest", "free"), [(8, False), (16, True)])
def test_sizes_are_free_only_if_several_were_tried(make, monkeypatch, largest, free):
    """Of large images, only half the size fits into memory."""
    monkeypatch.setattr("dml.models.traced_form.MOST", largest)
    torch.manual_seed(0)
    assert make(Net("plain").eval(), 8, 8, may_be_free=True).is_free is free


@pytest.mark.parametrize("may_be_free", [True, False])
@pytest.mark.parametrize(
    ("of_network", "of_form"),
    [(nan, nan), (nan, 0.0), (0.0, nan), (inf, inf), (0.0, inf), (0.0, 1e-4)],
)
def test_embeddings_that_are_no_numbers_never_agree(monkeypatch, may_be_free, of_network, of_form):
    class Constant(nn.Module):
        """Embeds each image as the same four values."""

        def __init__(self, value):
            super().__init__()
            self.value = value

        def forward(self, images):
            return torch.full((len(images), 4), self.value)

    def export(*arguments, **options):
        form = Constant(of_form)
        return lambda images: (form(images),)

    monkeypatch.setattr(torch.onnx, "export", export)
    with pytest.raises(UserError, match="onnx: differs from PyTorch by"):
        make_onnx(Constant(of_network), 8, 8, may_be_free)
