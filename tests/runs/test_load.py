import pytest
import yaml

import dml
from dml.config.versions import ADDED_LATER
from dml.core.errors import UserError
from dml.runs.experiment import resume


def test_runs_that_cannot_be_loaded(run_tiny, tmp_path):
    with pytest.raises(UserError, match=r"has no config\.yaml"):
        dml.load(tmp_path)
    _, folder = run_tiny()
    with pytest.raises(UserError, match="there is repeat0-fold0"):
        dml.load(folder, job="repeat7-fold0")
    (folder / "config.yaml").write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        dml.load(folder)


def test_a_run_older_than_some_options_loads_and_is_finished(run_tiny, capsys):
    summary, folder = run_tiny()
    stored = yaml.safe_load((folder / "config.yaml").read_text())
    for addition in ADDED_LATER:
        node, _, key = addition.option.rpartition(".")
        stored[node].pop(key, None)
    (folder / "config.yaml").write_text(yaml.safe_dump(stored))
    embedder, _ = dml.load(folder)
    assert embedder.embedding_size == summary["embedding_size"]
    assert resume(folder)["metrics"] == summary["metrics"]
    assert "finished before" in capsys.readouterr().out
