import pytest

from dml.core.errors import ConfigError
from dml.core.timm_records import find_record


def test_a_name_with_and_without_a_tag():
    assert find_record("resnet50.tv_in1k")["interpolation"] == "bilinear"
    assert find_record("convnext_tiny")["architecture"] == "convnext_tiny"


@pytest.mark.parametrize(
    ("name", "near"), [("convnextt_tiny", "convnext_tiny"), ("resnet50.tv_1k", "resnet50.tv_in1k")]
)
def test_another_name_gets_a_suggestion(name, near):
    with pytest.raises(ConfigError, match=rf"backbone\.model={name} .*mean '{near}'"):
        find_record(name)
