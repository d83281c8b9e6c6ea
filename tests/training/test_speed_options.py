"""Options that change how fast a run is computed: the same run, or a refusal."""

import pytest

from dml.config.check import check
from dml.config.schema import Config
from dml.core.errors import UserError

SHORT = ("protocol.steps_per_epoch=3", "data.batch_size=60", "loss=mfcont")


@pytest.fixture
def score(run_tiny):
    def scored(*overrides):
        summary, _ = run_tiny("overwrite=true", *SHORT, *overrides)
        return summary["metrics"]["map_at_r"]["mean"]

    return scored


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["data.batch_size=30"], "batch 30 must be a multiple of 4 processes (nearest 28, 32)"),
        (
            ["data.batch_size=42", "data.sampler=balanced", "data.images_per_class=7"],
            "must be a multiple of 4 processes (nearest 28, 56)",
        ),
        (["data.batch_size=2"], "(nearest 4)"),
        (["protocol.workers=2"], "protocol.workers: 2 models side by side"),
        (["protocol=mlrc", "search=bayes"], "search: processes of torchrun share one trial"),
    ],
)
def test_what_several_processes_cannot_share_is_refused(composed, monkeypatch, overrides, expected):
    alone = composed(*overrides)
    check(alone, Config)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(UserError) as problem:
        check(alone, Config)
    assert expected in str(problem.value)


def test_only_the_first_process_tells_of_a_wrong_config(command_line, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank, lines in (("0", 1), ("1", 0)):
        monkeypatch.setenv("RANK", rank)
        status, _, err = command_line("data.batch_size=3")
        assert status == 2
        assert err.count("error:") == lines


def test_gradient_accumulation_is_refused_with_the_reason(command_line):
    status, _, err = command_line("optim.accumulate_steps=4")
    assert status == 2
    assert "compare all images of a batch" in err
