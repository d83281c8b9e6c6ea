"""Refusals of W&B are one line, said before data are read."""

import os
from importlib.util import find_spec

import pytest

from dml.core.errors import UserError
from dml.tracking.weights_and_biases import WandbTracker


def refused(command_line, tmp_path, *words):
    outputs = tmp_path / "o"
    status, _, err = command_line("tracking=wandb", f"outputs={outputs}", "data=cub", *words)
    assert status != 0
    assert not outputs.exists()
    (line,) = err.strip().splitlines()
    return line


def test_no_key(command_line, service, tmp_path):
    service.key = False
    line = refused(command_line, tmp_path)
    assert line.startswith("error: tracking.mode: online needs a key")
    assert "WANDB_API_KEY" in line
    assert "tracking.mode=offline" in line


def test_a_refused_key(command_line, service, tmp_path, monkeypatch):
    def login(**options):
        raise ValueError("API key must have 40+ characters\nlong story")

    monkeypatch.setattr(service, "login", login)
    line = refused(command_line, tmp_path)
    assert line.startswith("error: tracking: W&B refuses the key: API key must have 40+ ")


def test_not_installed(command_line, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    line = refused(command_line, tmp_path)
    assert "pip install -e '.[wandb]'" in line
    assert "tracking=none" in line


@pytest.mark.parametrize("mode", ["disabled", "of-line"])
def test_an_unknown_mode(command_line, service, tmp_path, mode):
    line = refused(command_line, tmp_path, f"tracking.mode={mode}")
    assert line.startswith(f"error: tracking.mode: '{mode}' must be online or offline")


def test_an_unknown_option(command_line, service, tmp_path):
    line = refused(command_line, tmp_path, "+tracking.projekt=x")
    assert "projekt" in line


@pytest.mark.skipif(find_spec("wandb") is None, reason="wandb is an extra")
def test_without_a_key_nobody_is_asked(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "no-settings"))
    monkeypatch.setattr("builtins.input", lambda *prompt: pytest.fail("asked"))
    with pytest.raises(UserError, match=r"tracking\.mode: online needs a key") as error:
        WandbTracker()
    assert "\n" not in str(error.value)
