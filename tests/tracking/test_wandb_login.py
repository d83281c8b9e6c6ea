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
