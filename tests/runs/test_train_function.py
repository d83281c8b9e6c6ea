import pytest
from hydra.core.global_hydra import GlobalHydra

import dml
from dml.core.errors import ConfigError
from tests.conftest import TINY


def test_the_summary_is_returned_each_time(tmp_path, run_tiny):
    words = [*TINY, "protocol.epochs=1", f"outputs={tmp_path}/outputs"]
    summary = dml.train(words)
    assert summary["metrics"]["map_at_r"]["mean"] > 0
    assert dml.train(words)["metrics"] == summary["metrics"]
    assert not GlobalHydra.instance().is_initialized()
    again, _ = run_tiny("protocol.epochs=1")  # the command line finds the same folder
    assert again == summary


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["loss=mfcwm"], "loss: 'mfcwm' does not exist; did you mean 'mfcwms'"),
        (["data.batch_size=0"], "data.batch_size: 0 must be greater than or equal to 1"),
        (["-m", "seed=0,1"], "train: trains one model; call it in a loop"),
        (["params=nothing"], "params: nothing is neither a file nor one of"),
        ("loss=mfcwms", r"type dml.train\(\['loss=mfcwms'\]\)"),
    ],
)
def test_mistakes_are_exceptions(words, message):
    with pytest.raises(ConfigError, match=message):
        dml.train(words)
    assert not GlobalHydra.instance().is_initialized()
