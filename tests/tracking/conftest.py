"""A server of W&B that is a folder."""

from __future__ import annotations

import pytest

from tests.tracking.wandb_stand_in import Service


@pytest.fixture
def service(tmp_path, monkeypatch) -> Service:
    stand_in = Service(tmp_path / "server")
    monkeypatch.setitem(__import__("sys").modules, "wandb", stand_in)
    for name in ("WANDB_SWEEP_ID", "WANDB_RUN_ID", "WANDB_MODE", "WANDB_PROJECT", "WANDB_ENTITY"):
        monkeypatch.delenv(name, raising=False)
    return stand_in
