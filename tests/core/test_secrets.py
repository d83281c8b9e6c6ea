"""Secrets in texts and options."""

import pytest

from dml.core import secrets
from dml.core.secrets import is_secret_name, mask_options, mask_text, remember_secrets


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    monkeypatch.setattr(secrets, "_values", set())


def test_names():
    secrets = ("tracking.settings.api_key", "backbone.hub_token", "password", "storage.secret_key")
    assert all(map(is_secret_name, secrets))
    assert not any(map(is_secret_name, ("embedder.token_pooling", "tokens", "monkey")))


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("open postgresql://me:key@host/runs", "open postgresql://me:***@host/runs"),
        ("+tracking.api_key=abc seed=3", "+tracking.api_key=*** seed=3"),
        ("postgresql://me:a/b@c@host/runs", "postgresql://me:***@host/runs"),
        ('a.password="two words" b=1', "a.password=*** b=1"),
        ("a.token=one,two", "a.token=***"),
        ("embedder.token_pooling=token", "embedder.token_pooling=token"),
        ("sqlite:////tmp/runs.db", "sqlite:////tmp/runs.db"),
        ("loss.token: expected a number", "loss.token: expected a number"),
    ],
)
def test_texts(text, masked):
    assert mask_text(text) == masked


def test_a_remembered_secret_is_masked_wherever_it_stands():
    remember_secrets({"a.api_key": "abcdefgh1", "a.token": "short", "url": "x://a:pass-word@h"})
    remember_secrets({"+a.token": "abcdefgh3,abcdefgh4", "b.token": {"c": ["abcdefgh5"]}})
    assert mask_text("abcdefgh3 abcdefgh4 abcdefgh5") == "*** *** ***"
    remember_secrets({"+tracking": '{api_key:"abcdefgh2",mode:offline}'})
    assert mask_text("abcdefgh1 short abcdefgh2 pass-word") == "*** short *** ***"


def test_options():
    remember_secrets({"password": "digits"})
    assert mask_options({"name": "digits"}) == {"name": "digits"}
    options = {"api_key": 1.5, "secret": {"a": "b"}, "token": None, "list": [{"password": 1}]}
    masked = {"api_key": "***", "secret": "***", "token": None, "list": [{"password": "***"}]}
    assert mask_options(options) == masked
    assert mask_options({"url": "x://a:b@h"}) == {"url": "x://a:***@h"}
