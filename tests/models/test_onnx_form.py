"""Height and width of an ONNX form are free only where other sizes agree with PyTorch."""

import pytest
import torch
from torch import nn

from dml.core.errors import UserError
from dml.models.onnx_form import make_onnx

pytest.importorskip("onnxruntime")


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


@pytest.mark.parametrize(
    ("case", "free"),
    [("plain", True), ("large", False), ("small", False), ("oblong", False), ("flat", False)],
)
def test_sizes_that_are_free(case, free):
    torch.manual_seed(0)
    form = make_onnx(Net(case).eval(), 8, 8, may_be_free=True)
    assert form.is_free is free
    assert form.difference <= 1e-5
    assert not make_onnx(Net("plain").eval(), 8, 8, may_be_free=False).is_free


def test_a_network_that_depends_on_the_batch():
    with pytest.raises(UserError, match=r"onnx: differs from PyTorch by .* of 8x12 pixels"):
        make_onnx(Net("batch").eval(), 8, 12, may_be_free=True)


@pytest.mark.parametrize(("largest", "free"), [(8, False), (16, True)])
def test_sizes_are_free_only_if_several_were_tried(monkeypatch, largest, free):
    """Of large images, only half the size fits into memory."""
    monkeypatch.setattr("dml.models.onnx_form.MOST", largest)
    torch.manual_seed(0)
    assert make_onnx(Net("plain").eval(), 8, 8, may_be_free=True).is_free is free
