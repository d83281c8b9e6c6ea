"""What W&B is sent, by a stand-in that takes it."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dml.config.check import check
from dml.config.schema import Config
from dml.core.errors import RunStopped, UserError
from dml.runs.experiment import run
from dml.runs.folder.run_folder import RunFolder
from dml.tracking import History, JobTracker, NullTracker, RunInfo, tracked
from dml.tracking.dashboard import BARS, COLUMNS, CURVES, PICTURES
from dml.tracking.weights_and_biases import WandbTracker
from tests.conftest import TINY
from tests.killed_process import die_at
from tests.tracking.wandb_stand_in import Service


@pytest.fixture
def prepared(composed, tmp_path):
    """The config and folder of a run that was not started yet."""

    def prepare(*overrides, tracking="wandb", name="outputs"):
        places = (f"outputs={tmp_path / name}", f"tracking={tracking}")
        cfg = composed(*TINY, "protocol.epochs=3", *places, *overrides)
        return cfg, RunFolder.of(cfg, check(cfg, Config))

    return prepare


def start(cfg):
    return run(cfg, check(cfg, Config))


def history_of(folder, job=(0, 0)):
    """The rows of `history.csv` as W&B should have them."""
    rows = History(folder / "history.csv").of(*job)
    return [
        {"_step": row["step"], **{k: row[k] for k in row if k not in ("repeat", "fold", "step")}}
        for row in rows
    ]


@pytest.mark.pictures
def test_one_model_is_one_run(prepared, service, capsys):
    cfg, folder = prepared("experiment.id=mft_table1", "tracking.tags=[mine]")
    summary = start(cfg)
    (name,) = service.ids()
    assert name == folder.run_id()
    (options,) = service.inits(name)
    assert options["group"] == "mft_table1"
    assert options["job_type"] == "repeat0-fold0"
    assert options["resume"] == "allow"
    assert options["project"] == "dml-benchmark"
    assert options["tags"] == ["digits", "traditional", "stand-in", "mine"]
    assert options["config"]["loss"]["name"] == "mfcwms"
    assert options["config"]["run"]["result_id"] == "mf_cwms"
    assert (options["config"]["run"]["repeat"], options["config"]["run"]["fold"]) == (0, 0)
    assert "tracking" not in options["config"]
    assert service.rows(name) == history_of(folder.path)
    assert [row["_step"] for row in service.rows(name)] == [0, 7, 14, 21]
    assert service.pictures(name) == {
        "figures/learning_curve": "image learning_curve.png",
        "figures/neighbors": "image neighbors.png",
    }
    final = service.summary(name)
    assert final["test/map_at_r"] == summary["metrics"]["map_at_r"]["mean"]
    assert final["untrained/recall_at_1"] == summary["untrained"]["recall_at_1"]["mean"]
    assert final["images_per_second"] == summary["images_per_second"]
    assert set(CURVES.values()) <= set(service.rows(name)[-1])  # what the dashboard shows is there
    assert {*BARS.values()} <= {*final, "concatenated/map_at_r"}
    assert set(PICTURES) == set(service.pictures(name))
    assert service.exits(name) == [0]
    assert f"https://example.org/{name}" in capsys.readouterr().out.replace("\n", "")
    start(cfg)  # finished, and W&B has it all
    assert len(service.inits(name)) == 1


@pytest.mark.pictures
@pytest.mark.parametrize(
    ("point", "lost"),
    [
        ("before_rename:9", 0),  # a row is sent that the checkpoint does not know
        ("between_checkpoints:3", 2),  # W&B has not received the last rows
        ("wandb_log:5", 0),  # the pictures
        ("wandb_finish:1", 0),  # the run is finished, but not in W&B
    ],
)
def test_a_killed_run_continues_without_gap_or_repeat(prepared, service, point, lost):
    cfg, folder = prepared()
    assert die_at(point, start, cfg) != 0
    (name,) = service.ids()
    if lost:
        service.lose(name, lost)
    summary = start(cfg)
    assert service.ids() == [name]
    assert service.rows(name) == history_of(folder.path)
    assert not (service.folder / name / "dropped.jsonl").exists()
    assert len(service.pictures(name)) == 2
    assert service.summary(name)["test/map_at_r"] == summary["metrics"]["map_at_r"]["mean"]
    assert service.exits(name) == [0]


# What happens to a run of one model, in any order: an evaluation, a kill that loses rows on their
# way to W&B and goes back to an older checkpoint.
EVENTS = st.lists(
    st.one_of(
        st.just("evaluate"),
        st.tuples(st.integers(0, 3), st.integers(0, 2)),
    ),
    max_size=25,
)


@settings(deadline=None)
@given(EVENTS)
def test_w_and_b_ends_up_with_the_history(tmp_path_factory, events):
    folder = tmp_path_factory.mktemp("run")
    service = Service(folder / "server")
    info = RunInfo(folder, "abc", "name", "group", {}, [(0, 0)], say=lambda line: None)

    def begin():
        tracker = WandbTracker.__new__(WandbTracker)
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(__import__("sys").modules, "wandb", service)
            tracker.__init__()
        tracker.start(info)
        history = History(folder / "history.csv")
        return JobTracker(history, tracker, 0, 0, lambda metrics: None), history, tracker

    job, history, tracker = begin()
    for event in events:
        if event == "evaluate":
            count = len(history.of(0, 0))
            job.log({"epoch": count / 2, "x": count / 3}, 5 * count)
            continue
        lost, back = event
        if service.ids() and lost:
            service.lose("abc", lost)
        job, history, tracker = begin()
        history.rewind((0, 0), max(0, len(history.of(0, 0)) - back))
    count = len(history.of(0, 0))
    job.log({"epoch": count / 2, "x": count / 3}, 5 * count)
    # What was evaluated before a kill is evaluated again until training is further than ever.
    while 5 * (len(history.of(0, 0)) - 1) < service.rows("abc")[-1]["_step"]:
        count = len(history.of(0, 0))
        job.log({"epoch": count / 2, "x": count / 3}, 5 * count)
    tracker.job_done({"repeat": 0, "fold": 0, "metrics": {}})
    assert service.rows("abc") == history_of(folder)
    assert not (service.folder / "abc" / "dropped.jsonl").exists()


@pytest.fixture
def two_folds(service, tmp_path):
    """A run of two models whose first one has two rows of an earlier process."""
    history = History(tmp_path / "history.csv")
    for step in (0, 4):
        history.append({"repeat": 0, "fold": 0, "epoch": step / 4, "step": step, "map_at_r": 0.1})
    folds = [(0, 0), (0, 1)]
    info = RunInfo(tmp_path, "abc", "cub seed0", "mlrc", {"seed": 0}, folds, say=lambda line: None)
    return info, history


RESULTS = [
    {"repeat": 0, "fold": f, "metrics": {"map_at_r": f / 10}, "best_epoch": f} for f in (0, 1)
]
TOTAL = {
    "metrics": {"map_at_r": {"mean": 0.05, "ci95": 0.01, "std": 0.1, "repeats": 2}},
    "concatenated": {
        "metrics": {"map_at_r": {"mean": 0.07, "ci95": None, "std": None, "repeats": 1}}
    },
}


def work(tracker, history):
    """Two folds side by side, told of their rows more than once."""
    rows = {fold: JobTracker(history, tracker, 0, fold, lambda metrics: None) for fold in (0, 1)}
    rows[1].log({"epoch": 0.0, "map_at_r": 0.2}, 0)
    rows[0].log({"epoch": 2.0, "map_at_r": 0.3}, 8)
    for row in history.of(0, 0):
        tracker.log(row, int(row["step"]))
    for result in RESULTS * 2:
        tracker.job_done(result)


def test_folds_are_runs_of_their_own(two_folds, service):
    info, history = two_folds
    tracker = WandbTracker()
    with tracked(tracker, info):
        work(tracker, history)
        tracker.conclude(TOTAL, [])
    ids = ["abc", "abc-repeat0-fold0", "abc-repeat0-fold1"]
    assert service.ids() == ids
    inits = [service.inits(name)[0] for name in ids]
    assert [len(service.inits(name)) for name in ids] == [1, 1, 1]
    assert [one["job_type"] for one in inits] == ["combined", "repeat0-fold0", "repeat0-fold1"]
    assert {one["group"] for one in inits} == {"mlrc"}
    assert [row["_step"] for row in service.rows(ids[1])] == [0, 4, 8]
    for fold in (0, 1):
        name = ids[1 + fold]
        assert service.rows(name) == history_of(info.folder, (0, fold))
        assert service.summary(name) == {"test/map_at_r": fold / 10, "best_epoch": fold}
    assert service.rows("abc") == []
    assert service.summary("abc") == {
        "combined/map_at_r": 0.05,
        "combined_ci95/map_at_r": 0.01,
        "concatenated/map_at_r": 0.07,
    }
    assert set(COLUMNS) <= {*service.summary("abc"), *service.summary(ids[1])}
    assert [service.exits(name) for name in ids] == [[0], [0], [0]]
    # Continued after all is done: nothing is opened again.
    with tracked(tracker, info):
        work(tracker, history)
        tracker.conclude(TOTAL, [])
    assert [len(service.inits(name)) for name in ids] == [1, 1, 1]


def test_a_sweep_sees_one_run_under_the_name_it_gave(two_folds, service, monkeypatch):
    monkeypatch.setenv("WANDB_SWEEP_ID", "s1")
    monkeypatch.setenv("WANDB_RUN_ID", "given")
    info, history = two_folds
    tracker = WandbTracker(project="ours", entity="we")
    with tracked(tracker, info):
        work(tracker, history)
        tracker.conclude(TOTAL, [])
    assert service.ids() == ["given"]
    (options,) = service.inits("given")
    assert not {"id", "project", "entity"} & set(options)
    assert service.summary("given")["combined/map_at_r"] == 0.05


def test_a_sweep_s_run_of_a_finished_command_is_filled(prepared, service, monkeypatch):
    cfg, folder = prepared(tracking="none")
    start(cfg)
    assert service.ids() == []
    monkeypatch.setenv("WANDB_SWEEP_ID", "s1")
    monkeypatch.setenv("WANDB_RUN_ID", "given")
    cfg, _ = prepared()
    start(cfg)
    assert service.rows("given") == history_of(folder.path)
    assert service.exits("given") == [0]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UserError("x"), 1),
        (ZeroDivisionError(), 1),
        (RunStopped("x", 75), 75),
        (KeyboardInterrupt(), 130),
    ],
)
def test_what_is_open_is_closed_with_the_status(two_folds, service, error, status):
    info, history = two_folds
    tracker = WandbTracker()

    def fail():
        with tracked(tracker, info):
            JobTracker(history, tracker, 0, 1, lambda metrics: None).log({"epoch": 0.0}, 0)
            raise error

    with pytest.raises(type(error)):
        fail()
    assert service.ids() == ["abc-repeat0-fold1"]
    assert service.exits("abc-repeat0-fold1") == [status]


def test_each_job_of_a_multirun_is_its_own_run(command_line, service, tmp_path):
    words = [*TINY, "protocol.epochs=1", "tracking=wandb", f"outputs={tmp_path / 'o'}"]
    status, _, err = command_line("-m", *words, "optim.lr=1e30,1e-3")
    assert status == 1
    assert "1 of 2 runs failed" in err
    ends = sorted(service.exits(name)[0] for name in service.ids())
    assert ends == [0, 1]


def test_a_dead_service_does_not_end_the_training(prepared, service, capsys):
    cfg, folder = prepared()
    service.crash_at = 4
    summary = start(cfg)
    said = capsys.readouterr().out.replace("\n", " ")
    assert said.count("W&B does not answer (ConnectionResetError: Connection lost)") == 1
    assert service.torn_down
    assert folder.summary.exists()
    service.crash_at = None
    start(cfg)  # the same command sends what is missing
    (name,) = service.ids()
    assert service.rows(name) == history_of(folder.path)
    assert service.summary(name)["test/map_at_r"] == summary["metrics"]["map_at_r"]["mean"]
    assert service.exits(name) == [0]


def test_whenever_the_service_dies_the_next_start_sends_the_rest(two_folds, service):
    info, history = two_folds
    said = []
    info = replace(info, say=said.append)
    tracker = WandbTracker()
    service.crash_at = 1
    with tracked(tracker, info):
        work(tracker, history)  # the rows are in the history from here on
    crashes = 1
    while service.ids() == [] or not service.exits("abc"):
        service.calls, service.crash_at = 0, crashes + 1
        with tracked(tracker, info):
            for result in RESULTS:
                tracker.job_done(result)
            tracker.conclude(TOTAL, [])
        crashes += 1
    assert crashes > 5
    assert sum("does not answer" in line for line in said) == crashes - 1
    for fold in (0, 1):
        name = f"abc-repeat0-fold{fold}"
        assert service.rows(name) == history_of(info.folder, (0, fold))
        assert service.exits(name) == [0]


def test_overwrite_begins_a_new_run(tmp_path):
    folder = RunFolder(tmp_path)
    first = folder.run_id()
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / f"{first}.online").touch()
    folder.clear()
    assert folder.run_id() != first
    assert not (tmp_path / "wandb").exists()


class TestMistakes:
    """Said before data are touched."""

    def refused(self, command_line, tmp_path, *words):
        outputs = tmp_path / "o"
        status, _, err = command_line("tracking=wandb", f"outputs={outputs}", "data=cub", *words)
        assert status != 0
        assert not outputs.exists()
        (line,) = err.strip().splitlines()
        return line

    def test_no_key(self, command_line, service, tmp_path):
        service.key = False
        line = self.refused(command_line, tmp_path)
        assert line.startswith("error: tracking.mode: online needs a key")
        assert "WANDB_API_KEY" in line
        assert "tracking.mode=offline" in line

    def test_a_refused_key(self, command_line, service, tmp_path, monkeypatch):
        def login(**options):
            raise ValueError("API key must have 40+ characters\nlong story")

        monkeypatch.setattr(service, "login", login)
        line = self.refused(command_line, tmp_path)
        assert line.startswith("error: tracking: W&B refuses the key: API key must have 40+ ")

    def test_not_installed(self, command_line, tmp_path, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "wandb", None)
        line = self.refused(command_line, tmp_path)
        assert "pip install -e '.[wandb]'" in line
        assert "tracking=none" in line

    @pytest.mark.parametrize("mode", ["disabled", "of-line"])
    def test_an_unknown_mode(self, command_line, service, tmp_path, mode):
        line = self.refused(command_line, tmp_path, f"tracking.mode={mode}")
        assert line.startswith(f"error: tracking.mode: '{mode}' must be online or offline")

    def test_an_unknown_option(self, command_line, service, tmp_path):
        line = self.refused(command_line, tmp_path, "+tracking.projekt=x")
        assert "projekt" in line


def test_environment_variables_are_followed(composed, monkeypatch):
    for name, value in (("MODE", "offline"), ("PROJECT", "p"), ("ENTITY", "e")):
        monkeypatch.setenv(f"WANDB_{name}", value)
    tracking = composed("tracking=wandb").tracking
    assert (tracking.mode, tracking.project, tracking.entity) == ("offline", "p", "e")


def test_a_null_tracker_takes_everything(tmp_path):
    tracker = NullTracker()
    info = RunInfo(tmp_path, "abc", "name", "group", {}, [(0, 0)])
    with tracked(tracker, info):
        tracker.log({"epoch": math.nan}, 0)
        tracker.job_done({})
        tracker.conclude({}, [])
