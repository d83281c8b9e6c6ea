"""Refusals of W&B are one line, said before data are read."""

import pytest


@pytest.mark.parametrize("reason", ["there is no key", "API key must have 40+ characters"])
@pytest.mark.promise("guides/trackers.md", "W&B has no key: one line says how to log in")
def test_refused(command_line, service, tmp_path, monkeypatch, reason):
    def login(**options):
        if reason == "there is no key":
            return False
        raise ValueError(f"{reason}\nlong story")

    monkeypatch.setattr(service, "login", login)
    words = ("tracking=wandb", f"outputs={tmp_path / 'o'}", "data=cub")
    status, _, err = command_line(*words)
    assert status != 0
    assert not (tmp_path / "o").exists()
    (line,) = err.strip().splitlines()
    assert line.startswith(f"error: tracking.mode: online needs a key of W&B ({reason}); run ")
    assert "WANDB_API_KEY, or use tracking.mode=offline" in line


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("tracking.project=a/b", "tracking.project: Invalid project name 'a/b'"),
        ("'tracking.project=50%'", "tracking.project: Invalid project name '50%'"),
        (f"tracking.project={'a' * 129}", "tracking.project: Invalid project name"),
        ("tracking.tags=['']", "tracking.tags: "),
        (f"tracking.tags=[{'a' * 65}]", "tracking.tags: "),
        (f"tracking.tags=[fine,{'a' * 65}]", "tracking.tags: "),
    ],
)
@pytest.mark.promise(
    "guides/trackers.md",
    "a project or tag that W&B refuses is named before training, with its reason",
)
def test_what_wandb_refuses_is_named_before_training(
    command_line, tmp_path, monkeypatch, option, reason
):
    """By W&B's own library, not by the stand-in."""
    for name in ("WANDB_MODE", "WANDB_PROJECT", "WANDB_ENTITY"):
        monkeypatch.delenv(name, raising=False)
    words = ("tracking=wandb", "tracking.mode=offline", option.strip("'"))
    status, _, err = command_line(*words, f"outputs={tmp_path / 'o'}", "data=digits")
    assert status != 0
    assert not (tmp_path / "o").exists()
    (line,) = err.strip().splitlines()
    assert line.startswith(f"error: {reason}")


def test_a_disabled_run_sends_nothing_and_leaves_no_folder(service, run_tiny, monkeypatch, capsys):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    _, folder = run_tiny("tracking=wandb")
    assert not (folder / "wandb").exists()
    assert "W&B" not in capsys.readouterr().out


def test_long_names_of_datasets_are_cut_in_tags(service, tmp_path, monkeypatch):
    from dml.tracking import RunInfo
    from dml.tracking.weights_and_biases import LONGEST_TAG, WandbTracker

    tracker = WandbTracker(mode="offline", tags=["mine"])
    name = "a folder with a very long name " * 4
    info = RunInfo(tmp_path, "x", "n", "g", config={}, jobs=[(0, 0)], tags=[name, ""])
    tracker.start(info)
    opened = []
    init = service.init
    monkeypatch.setattr(
        service, "init", lambda **options: opened.append(options) or init(**options)
    )
    tracker._open_run("x", "combined", {})
    assert opened[0]["tags"] == [name[:LONGEST_TAG], "mine"]
