"""Values that the options of a config stand for."""

import pytest
from timm.data import create_transform

from dml.config.schema import resolve_test_resize


@pytest.mark.parametrize("size", [64, 112, 192, 224, 256, 299, 384])
@pytest.mark.parametrize("share", [0.8, 0.9, 0.95, 1.0])
def test_the_crop_of_a_network_has_the_share_of_timm(size, share):
    resize, *_ = create_transform(size, crop_pct=share).transforms
    assert resolve_test_resize("auto", size, share) == resize.size


def test_the_crop_of_the_papers_has_its_share_at_any_size():
    for size in (224, 227):
        assert resolve_test_resize("auto", size) == 256
    for size in (32, 112, 192, 256, 384):
        assert size / resolve_test_resize("auto", size) == pytest.approx(224 / 256, rel=0.02)


def test_sizes_that_are_typed_and_whole_images():
    assert resolve_test_resize(288, 224) == 288
    assert resolve_test_resize(None, 224) is None
    assert resolve_test_resize("auto", None) is None
    assert resolve_test_resize("auto", 224, None) is None
