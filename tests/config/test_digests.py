"""Commands of earlier revisions keep the digest in the name of their run folder."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from dml.config.explain import compose_config
from dml.config.identity import digest
from dml.config.presets import apply_params

PINNED = yaml.safe_load((Path(__file__).parent / "digests.yaml").read_text())


def digest_of(command: str) -> str:
    words = command.split()
    params = [word.partition("=")[2] for word in words if word.startswith("params=")]
    options = [word for word in words if not word.startswith("params=")]
    cfg = compose_config("train", options)
    return digest(apply_params(cfg, params[-1] if params else None, options))


# Composing takes most of the time: a fifth of the commands is in every test run.
QUICK = list(PINNED)[::5]


@pytest.mark.parametrize("command", QUICK)
def test_a_command_has_the_digest_that_it_always_had(command: str):
    assert digest_of(command) == PINNED[command]


@pytest.mark.parametrize("command", [command for command in PINNED if command not in QUICK])
def test_all_other_commands_have_the_digests_that_they_always_had(command: str):
    assert digest_of(command) == PINNED[command]
