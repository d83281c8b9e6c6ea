"""Values that W&B receives, through a stand-in for its library and through the library itself."""

import multiprocessing
import os
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dml.config.check import check
from dml.config.schema import Config
from dml.core.errors import UserError
from dml.runs.experiment import run
from dml.runs.folder.run_folder import RunFolder
from dml.tracking import History, JobTracker, RunInfo, track_run
from dml.tracking.dashboard import BARS, COLUMNS, CURVES, PICTURES
from dml.tracking.weights_and_biases import WandbTracker
from tests.conftest import TINY
from tests.killed_process import die_at
from tests.tracking.lost_service import lose_the_service
from tests.tracking.wandb_file import written
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
    rows = History(folder / "history.csv").job_rows(*job)
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
        "figures/embedding_map": "image embedding_map.png",
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


@pytest.mark.parametrize(
    ("point", "lost", "pictures"),
    [
        ("before_rename:9", 0, 0),  # a row is sent that the checkpoint does not know
        ("between_checkpoints:3", 2, 0),  # W&B has not received the last rows
        pytest.param("wandb_log:5", 0, 3, marks=pytest.mark.pictures),  # the row of figures
        ("wandb_finish:1", 0, 0),  # the run is finished, but not in W&B
    ],
)
def test_a_killed_run_continues_without_gap_or_repeat(prepared, service, point, lost, pictures):
    cfg, folder = prepared()
    assert die_at(point, start, cfg) != 0
    (name,) = service.ids()
    if lost:
        service.lose(name, lost)
    summary = start(cfg)
    assert service.ids() == [name]
    assert service.rows(name) == history_of(folder.path)
    assert not (service.folder / name / "dropped.jsonl").exists()
    assert len(service.pictures(name)) == pictures
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
    info = RunInfo(folder, "abc", "name", "group", {}, [(0, 0)], notify=lambda line: None)

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
            count = len(history.job_rows(0, 0))
            job.log({"epoch": count / 2, "x": count / 3}, 5 * count)
            continue
        lost, back = event
        if service.ids() and lost:
            service.lose("abc", lost)
        job, history, tracker = begin()
        history.rewind((0, 0), max(0, len(history.job_rows(0, 0)) - back))
    count = len(history.job_rows(0, 0))
    job.log({"epoch": count / 2, "x": count / 3}, 5 * count)
    # What was evaluated before a kill is evaluated again until training is further than ever.
    while 5 * (len(history.job_rows(0, 0)) - 1) < service.rows("abc")[-1]["_step"]:
        count = len(history.job_rows(0, 0))
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
    info = RunInfo(
        tmp_path, "abc", "cub seed0", "mlrc", {"seed": 0}, folds, notify=lambda line: None
    )
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
    for row in history.job_rows(0, 0):
        tracker.log(row, int(row["step"]))
    for result in RESULTS * 2:
        tracker.job_done(result)


def test_folds_are_runs_of_their_own(two_folds, service):
    info, history = two_folds
    tracker = WandbTracker()
    with track_run(tracker, info):
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
    with track_run(tracker, info):
        work(tracker, history)
        tracker.conclude(TOTAL, [])
    assert [len(service.inits(name)) for name in ids] == [1, 1, 1]


def test_a_sweep_sees_one_run_under_the_name_it_gave(two_folds, service, monkeypatch):
    monkeypatch.setenv("WANDB_SWEEP_ID", "s1")
    monkeypatch.setenv("WANDB_RUN_ID", "given")
    info, history = two_folds
    tracker = WandbTracker(project="ours", entity="we")
    with track_run(tracker, info):
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
    assert said.count("W&B does not respond (ConnectionResetError: Connection lost)") == 1
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
    info = replace(info, notify=said.append)
    tracker = WandbTracker()
    service.crash_at = 1
    with track_run(tracker, info):
        work(tracker, history)  # the rows are in the history from here on
    crashes = 1
    while service.ids() == [] or not service.exits("abc"):
        service.calls, service.crash_at = 0, crashes + 1
        with track_run(tracker, info):
            for result in RESULTS:
                tracker.job_done(result)
            tracker.conclude(TOTAL, [])
        crashes += 1
    assert crashes > 5
    assert sum("does not respond" in line for line in said) == crashes - 1
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


def test_environment_variables_are_followed(composed, monkeypatch):
    for name, value in (("MODE", "offline"), ("PROJECT", "p"), ("ENTITY", "e")):
        monkeypatch.setenv(f"WANDB_{name}", value)
    tracking = composed("tracking=wandb").tracking
    assert (tracking.mode, tracking.project, tracking.entity) == ("offline", "p", "e")


def fail_in_the_second_fold(folder: Path) -> None:
    """Two models side by side; the second is still open when the run fails."""
    tracker = WandbTracker(project="p", mode="offline")
    info = RunInfo(folder, "abc", "cub seed0", "mlrc", {"seed": 0}, [(0, 0), (0, 1)])
    history = History(folder / "history.csv")
    with track_run(tracker, info):
        for step in (0, 5):
            for fold in (0, 1):
                rows = JobTracker(history, tracker, 0, fold, lambda metrics: None)
                rows.log({"epoch": step / 5, "map_at_r": step / 100}, step)
        tracker.job_done({"repeat": 0, "fold": 0, "metrics": {"map_at_r": 0.5}})
        raise UserError("no more")


@pytest.mark.skipif(find_spec("wandb") is None, reason="wandb is an extra")
class TestOffline:
    """The library itself, without network or account: its files are read back."""

    @pytest.fixture(autouse=True)
    def _no_account(self, monkeypatch, tmp_path):
        for name in [name for name in os.environ if name.startswith("WANDB_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))
        monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "no-settings"))

    @pytest.mark.pictures
    def test_a_killed_run_is_whole_after_it_was_continued(self, composed, tmp_path):
        places = (f"outputs={tmp_path}", "tracking=wandb", "tracking.mode=offline")
        cfg = composed(*TINY, *places, "tracking.project=mine", "experiment.id=mft_table1")
        folder = RunFolder.of(cfg, check(cfg, Config))
        assert die_at("between_checkpoints:3", start, cfg) != 0  # after the third row
        summary = start(cfg)
        found = written(folder.path, folder.run_id())
        assert list(found) == [folder.run_id()]
        (file,) = found.values()
        assert file.run.project == "mine"
        assert file.run.run_group == "mft_table1"
        assert file.run.job_type == "repeat0-fold0"
        assert list(file.run.tags) == ["digits", "traditional", "stand-in"]
        assert file.config["loss"]["name"] == "mfcwms"
        assert file.config["run"]["result_id"] == "mf_cwms"
        assert file.metrics["*"] == "epoch"
        *rows, pictures = file.history
        assert [row["_step"] for row in rows] == [0, 7, 14]
        assert [row["epoch"] for row in rows] == [0, 1, 2]
        logged = History(folder.history).job_rows(0, 0)
        for name in ("map_at_r", "recall_at_1", "r_precision"):
            assert [row[name] for row in rows] == [row[name] for row in logged]
        for name in ("learning_curve", "neighbors"):
            picture = file.folder / "files" / pictures[f"figures/{name}.path"]
            assert picture.read_bytes() == (folder.figures / f"{name}.png").read_bytes()
        assert file.summary["test/map_at_r"] == summary["metrics"]["map_at_r"]["mean"]
        assert file.summary["untrained/map_at_r"] == summary["untrained"]["map_at_r"]["mean"]
        assert file.exit_code == 0

    def test_folds_side_by_side_and_a_failure(self, tmp_path):
        with pytest.raises(UserError, match="no more"):
            fail_in_the_second_fold(tmp_path)
        ids = ["abc-repeat0-fold0", "abc-repeat0-fold1"]
        found = written(tmp_path, *ids)
        assert list(found) == ids
        assert [file.exit_code for file in found.values()] == [0, 1]
        for file in found.values():
            assert [row["_step"] for row in file.history] == [0, 5]
            assert file.run.run_group == "mlrc"
        assert found["abc-repeat0-fold0"].summary["test/map_at_r"] == 0.5

    @pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the service in /proc")
    def test_the_service_s_death_is_survived_and_the_next_run_has_a_new_one(self, tmp_path):
        work = multiprocessing.get_context("spawn").Process(
            target=lose_the_service, args=(tmp_path, tmp_path / "said.txt")
        )
        work.start()
        work.join(300)
        assert work.exitcode == 0
        said = (tmp_path / "said.txt").read_text()
        assert said.count("W&B does not respond") == 1
        second = written(tmp_path, "second")["second"]
        assert [row["_step"] for row in second.history] == [0, 5]
        assert second.exit_code == 0

    def test_a_wrong_setting_is_one_line(self):
        with pytest.raises(UserError, match=r"tracking\.settings: .*nonsense") as error:
            WandbTracker(mode="offline", settings={"nonsense": 1})
        assert "\n" not in str(error.value)
