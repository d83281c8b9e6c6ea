import json
import math
from types import SimpleNamespace

import pytest
import yaml
from hydra.core.global_hydra import GlobalHydra

import dml
from dml.cli.train_command import selection_score
from dml.config.check import check
from dml.core.errors import ConfigError, UserError
from dml.core.installation import CONFIGS
from dml.results.frame import make_frame
from dml.runs import experiment
from dml.runs.experiment import Experiment, _take_part
from dml.runs.folder.run_folder import RunFolder
from dml.runs.folder.stored_run import read_run
from tests.conftest import TINY, run_config
from tests.data.trees import class_folders
from tests.runs.small_runs import rows

SOAK = pytest.mark.soak


@pytest.mark.pictures
def test_files_of_a_run(run_tiny, capsys):
    summary, folder = run_tiny("loss=mfcont")
    assert summary == json.loads((folder / "summary.json").read_text())
    assert (summary["result_id"], summary["stand_in"]) == ("mf_contrastive", True)
    assert summary["selected_by"] == "map_at_r on test"
    assert summary["metrics"]["map_at_r"]["ci95"] is None  # one repeat has no interval
    assert yaml.safe_load((folder / "config.yaml").read_text())["loss"]["name"] == "mfcont"

    history = rows(folder)
    assert [float(row["epoch"]) for row in history] == [0.0, 1.0, 2.0]
    assert history[0]["loss"] == ""  # nothing was trained yet
    steps = 901 // 128
    assert [int(row["step"]) for row in history] == [0, steps, 2 * steps]
    best = max(history[1:], key=lambda row: float(row["map_at_r"]))
    assert summary["best_epoch"] == [float(best["epoch"])]
    assert math.isclose(summary["metrics"]["map_at_r"]["mean"], float(best["map_at_r"]))
    assert math.isclose(summary["untrained"]["map_at_r"]["mean"], float(history[0]["map_at_r"]))

    for name in ("learning_curve", "neighbors"):
        assert (folder / "figures" / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    shown = capsys.readouterr().out
    assert "MAP@R" in shown
    assert "stand-in" in shown
    assert str(folder) in shown
    assert not list(folder.rglob("*.partial"))


@pytest.mark.parametrize(
    ("protocol", "name"), [("traditional", "selection"), ("holdout", "validation")]
)
def test_only_scores_of_validation_classes_are_called_validation(run_tiny, protocol, name):
    summary, folder = run_tiny(f"protocol={protocol}", "tracking=tensorboard", "protocol.epochs=1")
    other = {"selection": "validation", "validation": "selection"}[name]
    for stored in (summary, *summary["jobs"]):
        assert "map_at_r" in stored[name]
        assert other not in stored
    mean = summary[name]["map_at_r"]["mean"]
    (row,) = make_frame([read_run(folder)]).itertuples()
    assert math.isclose(row.score, 100 * mean)  # lists rank runs by it
    assert (mean == summary["metrics"]["map_at_r"]["mean"]) == (protocol == "traditional")
    assert selection_score(summary) == mean
    events = b"".join(file.read_bytes() for file in folder.rglob("events.out.tfevents.*"))
    assert f"{name}/MAP@R".encode() in events
    assert f"{other}/MAP@R".encode() not in events


def test_same_seed_same_history(run_tiny, tmp_path):
    _, first = run_tiny()
    text = (first / "history.csv").read_bytes()
    _, again = run_tiny("overwrite=true")
    assert again == first
    assert (again / "history.csv").read_bytes() == text
    _, other = run_tiny("seed=1")
    assert (other / "history.csv").read_bytes() != text


@pytest.mark.parametrize("frozen", [True, False])
def test_only_batch_norm_sees_micro_batches(run_tiny, capsys, frozen):
    words = (f"embedder.freeze_batch_norm={frozen}", "protocol.epochs=1")
    whole, parts = (
        float(rows(run_tiny(*words, f"data.micro_batch={size}")[1])[1]["loss"])
        for size in ("null", 50)
    )
    assert (parts == pytest.approx(whole, rel=1e-6)) is frozen
    note = "note: data.micro_batch=50: BatchNorm normalizes each part by itself"
    assert capsys.readouterr().out.count(note) == (not frozen)


@pytest.mark.promise(
    "guides/resume.md",
    "a run is finished: the same command prints its result, and trains nothing",
)
def test_the_same_command_leaves_a_finished_run_unchanged(run_tiny, capsys):
    summary, folder = run_tiny()
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.*")}
    again, _ = run_tiny()
    assert again == summary
    assert before == {path: path.stat().st_mtime_ns for path in folder.rglob("*.*")}
    assert "already finished" in capsys.readouterr().out


def test_repeats_differ_and_yield_an_interval(run_tiny, capsys):
    summary, folder = run_tiny("protocol.repeats=2", "protocol.epochs=1")
    one, two = (job["metrics"]["map_at_r"] for job in summary["jobs"])
    assert one != two
    value = summary["metrics"]["map_at_r"]
    assert math.isclose(value["mean"], (one + two) / 2)
    # Student's t for one degree of freedom: 12.706
    assert math.isclose(value["ci95"], 12.706 * abs(one - two) / 2, rel_tol=1e-3)
    assert {row["repeat"] for row in rows(folder)} == {"0", "1"}
    shown = " ".join(capsys.readouterr().out.split())
    assert "(2 repeats)" in shown
    assert f"{100 * one:.2f}, {100 * two:.2f}" in shown  # an interval is shown from three on


@pytest.mark.parametrize(
    "loss", ["mfcwms", *(pytest.param(one, marks=SOAK) for one in ("mfcont", "proxy_anchor"))]
)
def test_training_helps_on_unseen_classes(composed, tmp_path, loss):
    summary, _ = run_config(composed(f"outputs={tmp_path}", f"loss={loss}", "device=cpu"))
    assert summary["metrics"]["map_at_r"]["mean"] > summary["untrained"]["map_at_r"]["mean"]


@pytest.mark.promise(
    "guides/resume.md",
    "the loss is not finite: the run ends with the step, and keeps the checkpoint before it",
)
def test_diverged_training_stops_with_its_step(run_tiny, monkeypatch):
    from dml.losses import MeanFieldContrastiveLoss

    calls = 0
    clean = MeanFieldContrastiveLoss.forward

    def poisoned(self, *args, **kwargs):
        nonlocal calls
        calls += len(args[0]) > 8  # the dry run has eight images
        return clean(self, *args, **kwargs) * (math.nan if calls >= 9 else 1.0)

    monkeypatch.setattr(MeanFieldContrastiveLoss, "forward", poisoned)
    with pytest.raises(UserError, match="not finite from step 9 on"):
        run_tiny("loss=mfcont", "protocol.epochs=5")


def test_without_epochs_the_untrained_network_is_scored(run_tiny, capsys):
    summary, folder = run_tiny("method=untrained", "protocol.epochs=0", "embedder.size=null")
    assert summary["result_id"] == "untrained"
    assert summary["best_epoch"] == [0.0]
    assert summary["metrics"] == summary["untrained"]
    assert len(rows(folder)) == 1
    again = json.loads((folder / "summary.json").read_text())
    assert again["jobs"][0]["steps"] == 0
    lines = capsys.readouterr().out.splitlines()
    (titles,) = [line for line in lines if "metric" in line]
    assert titles.split() == ["┃", "metric", "┃", "untrained", "┃"]
    assert not any("constant part" in line for line in lines)


def test_the_history_has_a_loss_with_a_constant_without_it_too(run_tiny):
    _, folder = run_tiny("protocol.epochs=1")
    row = (folder / "history.csv").read_text().splitlines()
    values = dict(zip(row[0].split(","), row[-1].split(","), strict=True))
    rest = float(values["loss"]) - float(values["loss_without_constant"])
    assert rest == pytest.approx(100 * math.log(2))
    _, folder = run_tiny("protocol.epochs=1", "loss=mfcont")
    assert "loss_without_constant" not in (folder / "history.csv").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("data=cub backbone=small_cnn data.root=absent transform.size=8", r"data\.root"),
        ("loss.alpha=-1", "alpha"),
        ("method=metrix loss=triplet", "TripletMarginLoss"),
        ("data.batch_size=5000", "data.batch_size: 5000 does not fit 901 training images"),
        (
            "data=folder data.root=few backbone=small_cnn transform.size=16",
            "protocol: 'few' has 1 training classes; 2 are needed",
        ),
    ],
)
@pytest.mark.promise("guides/resume.md", "an option is wrong: no folder is made")
def test_what_is_refused_leaves_no_folder(run_tiny, tmp_path, monkeypatch, words, message):
    """And downloads no weights, which are loaded later."""
    monkeypatch.chdir(tmp_path)
    class_folders(tmp_path / "few", classes=3)
    with pytest.raises(UserError, match=message):
        run_tiny(*words.split())
    assert not (tmp_path / "outputs").exists()


def test_own_images_of_few_classes_with_few_images_get_pairs(run_tiny, tmp_path, capsys):
    """Eight classes of three images: two classes train, of which a batch of 32 wants eight."""
    root = class_folders(tmp_path / "photos", classes=8)
    words = ("data=folder", f"data.root={root}", "backbone=small_cnn", "transform.size=16")
    words += ("data.batch_size=32", "protocol.epochs=1", "protocol.steps_per_epoch=2")
    _, folder = run_tiny(*words, "loss=contrastive")
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("batches of 32 images, 8 groups of 4")
    assert "data.sampler=class_stream" in first
    assert float(rows(folder)[-1]["loss"]) > 0


def test_the_summary_is_returned_each_time(tmp_path, run_tiny):
    words = [*TINY, "protocol.epochs=1", f"outputs={tmp_path}/outputs"]
    summary = dml.train(words)
    assert summary["metrics"]["map_at_r"]["mean"] > 0
    assert dml.train(words)["metrics"] == summary["metrics"]
    assert not GlobalHydra.instance().is_initialized()
    again, _ = run_tiny("protocol.epochs=1")  # the command line finds the same folder
    assert {**again, "folder": summary["folder"]} == summary


def test_a_folder_of_configs(tmp_path):
    (tmp_path / "loss").mkdir()
    (tmp_path / "loss" / "center.yaml").write_text((CONFIGS / "loss" / "ms.yaml").read_text())
    words = ["--config-dir", str(tmp_path), *TINY, "protocol.epochs=1", "loss=center"]
    summary = dml.train([*words, f"outputs={tmp_path}/outputs"])
    assert summary["loss"] == "ms"  # the name in the file


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["loss=mfcwm"], "loss: .*'mfcwms'"),
        (["data.batch_size=0"], "data.batch_size: 0"),
        (["-m", "seed=0,1"], "train: trains one model"),
        (["params=nothing"], "params: nothing"),
        ("loss=mfcwms", r"type dml.train\(\['loss=mfcwms'\]\)"),
    ],
)
def test_mistakes_are_exceptions(words, message):
    with pytest.raises(ConfigError, match=message):
        dml.train(words)
    assert not GlobalHydra.instance().is_initialized()


def test_values_that_cannot_be_read_when_a_run_is_resumed(run_tiny):
    _, folder = run_tiny("protocol.epochs=1")
    for value in ("'", "{", "[1", "${x}", "secret: b: c", "!!python/name:os.system", "&a [*a]"):
        with pytest.raises(ConfigError, match=r"^note: its value cannot be read") as caught:
            experiment.resume(folder, [f"note={value}"])
        assert "secret" not in str(caught.value)
    assert experiment.resume(folder, ['note="a: b: c"'])["config"]["seed"] == 0


SEARCH = ("protocol=validation", "search=bayes", "search.trials=1", "protocol.epochs=1")


def test_the_wall_time_contains_the_search(run_tiny, monkeypatch):
    clock, search_before = [0.0], Experiment._search

    def search_for_an_hour(experiment, stop):
        clock[0] += 3600
        return search_before(experiment, stop)

    monkeypatch.setattr("dml.runs.experiment.time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(Experiment, "_search", search_for_an_hour)
    assert run_tiny(*SEARCH)[0]["wall_seconds"] == 3600


def test_a_worker_trains_models_with_the_best_values_of_the_search(composed, tmp_path, monkeypatch):
    config = check(composed(f"outputs={tmp_path}", *TINY, *SEARCH))
    best, trained = SimpleNamespace(params={"optim.lr": 0.125}), []
    study = SimpleNamespace(best_trial=lambda: best)
    monkeypatch.setattr("dml.runs.search.search_loop.search", lambda *more: study)
    monkeypatch.setattr(
        "dml.runs.experiment.train_jobs", lambda context, *more: trained.append(context) or []
    )
    _take_part(RunFolder.of(config), config, lambda: None)
    assert [context.config.optim.lr for context in trained] == [0.125]
    assert config.optim.lr != 0.125


def test_a_name_for_a_finished_run_is_not_lost_in_silence(run_tiny, capsys):
    words = ("protocol.epochs=1", "name=first")
    run_tiny(*words)
    for later, notes in (
        (words, []),
        (words[:1], []),
        ((words[0], "name=second"), ["name=second is not stored: a finished run keeps name=first"]),
        ((*words, "note=why"), ["note=why is not stored: a finished run keeps no note"]),
    ):
        capsys.readouterr()
        run_tiny(*later)
        lines = capsys.readouterr().out.splitlines()
        found = [line.removeprefix("note: ") for line in lines if "is not stored" in line]
        assert "already finished; overwrite=true starts it again" in lines
        assert found == notes


@pytest.mark.parametrize("batch", [40, 4000])
def test_a_batch_that_is_larger_than_the_training_set_is_noted(run_tiny, capsys, batch):
    sampler = "data.sampler=class_stream", "data.images_per_class=4"
    length = "protocol.epochs=1", "protocol.steps_per_epoch=1"
    run_tiny(*sampler, *length, f"data.batch_size={batch}")
    note = "note: data.batch_size=4000 is above the "
    assert (note in capsys.readouterr().out) == (batch == 4000)
