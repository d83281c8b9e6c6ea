import time

import optuna
import pytest
from optuna.trial import TrialState

from dml.config.schema import SearchConfig
from dml.core.fault_injection import fault_point
from dml.runs.folder.run_folder import RunFolder
from dml.runs.search.proposals import create_distributions
from dml.runs.search.study import WORKER, Study, open_journal
from tests.killed_process import KILLED, die_at

SPACE = create_distributions({"loss.margin": {"low": 0, "high": 1}})


@pytest.fixture(params=["journal", "database"])
def study(tmp_path, request):
    config = SearchConfig(
        name="bayes",
        trials=2,
        startup=5,
        sampler="gp",
        try_defaults=False,
        pruning=False,
        storage=f"sqlite:///{tmp_path}/runs.db" if request.param == "database" else None,
        lease_seconds=60.0,
    )
    folder = RunFolder(tmp_path / "outputs" / "run" / "seed0")
    folder.path.mkdir(parents=True)
    return Study(folder, config, SPACE, seed=0)


def abandon(study, claim, host, seconds_ago):
    """As if another worker had made the claim and was not heard of since."""
    heard = {"host": host, "process": 1, "heard": time.time() - seconds_ago}
    study.storage.set_trial_user_attr(claim._trial_id, WORKER, heard)
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
    again = study.claim_trial()
    assert (again._trial_id, again.params) == (first._trial_id, first.params)


def test_a_line_of_the_journal_that_was_cut_short_is_removed(tmp_path):
    path = tmp_path / "journal.log"
    study = optuna.create_study(storage=open_journal(path), study_name="a")
    study.add_trial(optuna.create_trial(value=1.0))
    with open(path, "ab") as file:
        file.write(b'{"op_code": 4, "work')
    study = optuna.load_study(storage=open_journal(path), study_name="a")
    study.add_trial(optuna.create_trial(value=2.0))
    stored = optuna.load_study(storage=open_journal(path), study_name="a")
    assert [trial.value for trial in stored.trials] == [1.0, 2.0]


def test_a_killed_holder_frees_the_journal_at_once(tmp_path):
    path = tmp_path / "journal.log"
    begin = time.monotonic()

    def die_with_the_lock():
        storage = open_journal(path)
        storage._backend._lock.acquire()
        fault_point("here")

    assert die_at("here", die_with_the_lock) == KILLED
    optuna.create_study(storage=open_journal(path))
    assert time.monotonic() - begin < 10
