import pytest

from dml.core.errors import ConfigError
from dml.core.timm_records import find_record


def test_a_name_with_and_without_a_tag():
    assert find_record("resnet50.tv_in1k")["interpolation"] == "bilinear"
    assert find_record("convnext_tiny")["architecture"] == "convnext_tiny"


def test_another_name_gets_a_suggestion():
    with pytest.raises(ConfigError, match=r"backbone\.model=convnextt_tiny .*mean 'convnext_tiny'"):
        find_record("convnextt_tiny")


def test_another_tag_gets_a_list():
    with pytest.raises(ConfigError, match=r"has no such weights; timm has .*resnet50\.tv_in1k"):
        find_record("resnet50.no_such_tag")
