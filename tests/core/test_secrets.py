"""Secrets in texts and options."""

import pytest

from dml.core import secrets
from dml.core.secrets import is_secret_name, mask_options, mask_text, remember_secrets


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    monkeypatch.setattr(secrets, "_values", set())


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("tracking.settings.api_key", True),
        ("backbone.hub_token", True),
        ("password", True),
        ("embedder.token_pooling", False),
        ("tokens", False),
        ("monkey", False),
    ],
)
def test_names(name, secret):
    assert is_secret_name(name) is secret


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("open postgresql://me:key@host/runs", "open postgresql://me:***@host/runs"),
        ("+tracking.api_key=abc seed=3", "+tracking.api_key=*** seed=3"),
        ("embedder.token_pooling=token", "embedder.token_pooling=token"),
        ("sqlite:////tmp/runs.db", "sqlite:////tmp/runs.db"),
        ("loss.token: expected a number", "loss.token: expected a number"),
    ],
)
def test_texts(text, masked):
    assert mask_text(text) == masked


def test_a_remembered_secret_is_masked_wherever_it_stands():
    remember_secrets({"a.api_key": "abcdefgh1", "a.token": "short", "url": "x://a:pass-word@h"})
    remember_secrets({"+tracking": '{api_key:"abcdefgh2",mode:offline}'})
    assert mask_text("abcdefgh1 short abcdefgh2 pass-word") == "*** short *** ***"


def test_options():
    options = {"api_key": "abc", "token": None, "list": [{"password": 1}], "url": "x://a:b@h"}
    masked = {"api_key": "***", "token": None, "list": [{"password": "***"}], "url": "x://a:***@h"}
    assert mask_options(options) == masked
