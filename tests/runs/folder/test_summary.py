import pytest

from dml.config.check import check
from dml.config.schema import Config
from dml.runs.folder.summary import protocol_id


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ("protocol=pfml", ("pfml_standard", "test")),
        ("protocol=pfml data.label_noise=0.2", ("pfml_noise20", "test")),
        ("protocol=metrix", ("metrix_standard", "test")),
        ("protocol=conventional", ("conventional", "test")),
        ("protocol=traditional", ("traditional", "test")),
        ("protocol=mlrc", ("mlrc", "validation")),
        ("protocol=mlrc_ccp", ("mlrc", "validation")),
    ],
)
def test_protocol_ids(composed, overrides, expected):

    config = check(composed(*overrides.split()), Config)
    assert (protocol_id(config), config.protocol.selected_on) == expected
