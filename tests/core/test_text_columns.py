import pandas as pd
import pytest

from dml.core.text_columns import plain_text_columns

NAME = "caf\udce9"  # é in Latin-1, as Python reads it from a disk


@pytest.fixture(params=["python", "auto"], autouse=True)
def setting(request):
    """What a caller has chosen; auto: UTF-8 if pyarrow is installed."""
    with pd.option_context("mode.string_storage", request.param):
        yield request.param


def test_names_need_be_no_utf8(setting):
    with plain_text_columns():
        table = pd.DataFrame({"path": [NAME, "a"], "label": ["a", NAME]})
        table = table.set_index("path").loc[["a", NAME]].map(str.upper)
    assert table["label"].tolist() == [NAME.upper(), "A"]
    assert table["label"].dtype.storage == "python"


def test_the_setting_of_the_caller_stays(setting):
    with pytest.raises(KeyError), plain_text_columns():
        raise KeyError
    assert pd.get_option("mode.string_storage") == setting
    assert plain_text_columns()(pd.get_option)("mode.string_storage") == "python"
    assert pd.get_option("mode.string_storage") == setting
