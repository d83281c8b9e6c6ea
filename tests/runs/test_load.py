import pytest

import dml
from dml.core.errors import UserError


def test_runs_that_cannot_be_loaded(run_tiny, tmp_path):
    with pytest.raises(UserError, match=r"has no config\.yaml"):
        dml.load(tmp_path)
    _, folder = run_tiny()
    with pytest.raises(UserError, match="there is repeat0-fold0"):
        dml.load(folder, job="repeat7-fold0")
    (folder / "config.yaml").write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        dml.load(folder)
