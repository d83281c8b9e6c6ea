"""Small searches."""

import pytest

from dml.config.check import check
from dml.runs.folder.run_folder import RunFolder
from tests.runs.small_runs import SMALL

SEARCH = ("loss=contrastive", "search=bayes", "search.trials=4", "search.startup=2")


@pytest.fixture
def prepared(composed, tmp_path, glyphs_root):
    """The config and folder of a search that was not started yet."""

    def prepare(*overrides, name="outputs"):
        places = (f"outputs={tmp_path / name}", f"data.root={glyphs_root}")
        cfg = composed(*SMALL, *SEARCH, *places, *overrides)
        return cfg, RunFolder.of(check(cfg))

    return prepare
