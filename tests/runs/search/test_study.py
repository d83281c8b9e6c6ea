import time

import optuna
import pytest
from optuna.trial import TrialState

from dml.config.schema import SearchConfig
from dml.core.fault_injection import fault_point
from dml.runs.folder.run_folder import RunFolder
from dml.runs.search.proposals import create_distributions
from dml.runs.search.storage import open_journal
from dml.runs.search.study import Study
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
    )
    folder = RunFolder(tmp_path / "outputs" / "run" / "seed0")
    folder.path.mkdir(parents=True)
    return Study(folder, config, SPACE, seed=0)


def test_a_released_trial_is_continued_at_once(study):
    first = study.claim_trial()
    study.release()
    again = study.claim_trial()
    assert (again.number, again.params) == (first.number, first.params)


@pytest.mark.promise(
    "guides/search.md",
    "a trial ends while another process looks for one: it is not trained a second time",
)
def test_a_trial_that_ends_between_two_looks_is_not_claimed_again(study, monkeypatch):
    """Its lock is free then, but a list of trials from before shows it as unfinished."""
    first = study.claim_trial()
    before = study.optuna_study.trials
    study.finish(first, TrialState.COMPLETE, 0.5)
    monkeypatch.setattr(type(study.optuna_study), "trials", before)
    second = study.claim_trial()
    assert second.number != first.number
    assert study.stored(first).value == 0.5


def test_the_first_of_equal_trials_is_the_best(study):
    for _ in range(2):
        study.finish(study.claim_trial(), TrialState.COMPLETE, 0.5)
    assert study.best_trial().number == 0


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
