import time

import pytest
from optuna.trial import TrialState

from dml.config.schema import SearchConfig
from dml.runs.folder.run_folder import RunFolder
from dml.runs.search.proposals import create_distributions
from dml.runs.search.study import WORKER, Study

SPACE = create_distributions({"loss.margin": {"low": 0, "high": 1}})


@pytest.fixture
def study(tmp_path):
    config = SearchConfig(
        name="bayes",
        trials=2,
        startup=5,
        sampler="gp",
        pruning=False,
        storage=None,
        lease_seconds=60.0,
    )
    folder = RunFolder(tmp_path / "outputs" / "run" / "seed0")
    folder.path.mkdir(parents=True)
    return Study(folder, config, SPACE, seed=0)


def abandon(study, claim, host, seconds_ago):
    """As if another worker had made the claim and was not heard of since."""
    heard = {"host": host, "process": 1, "heard": time.time() - seconds_ago}
    study.storage.set_trial_user_attr(claim.id, WORKER, heard)
    study._locks.close()


def test_the_lease_of_a_worker_on_another_machine_must_expire(study):
    first = study.claim_trial()
    abandon(study, first, "elsewhere", seconds_ago=30)
    second = study.claim_trial()
    assert (first.number, second.number) == (0, 1)
    study.finish(second, TrialState.COMPLETE, 0.5)
    assert study.claim_trial() is None  # no third trial, and the first is not ours yet
    assert study.has_open_trials()
    abandon(study, first, "elsewhere", seconds_ago=90)
    again = study.claim_trial()
    assert (again.number, again.params) == (0, first.params)
    study.finish(again, TrialState.COMPLETE, 0.4)
    assert not study.has_open_trials()


def test_a_released_trial_is_continued_at_once(study):
    first = study.claim_trial()
    study.release(first)
    assert study.claim_trial() == first
