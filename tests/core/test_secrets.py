"""Secrets in texts and options."""

import pytest

from dml.core.secrets import is_secret_name, mask_options, mask_text


def test_names():
    secrets = ("tracking.settings.api_key", "backbone.hub_token", "password", "storage.secret_key")
    assert all(map(is_secret_name, secrets))
    assert not any(map(is_secret_name, ("embedder.token_pooling", "tokens", "monkey")))


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("+tracking.api_key=abc seed=3", "+tracking.api_key=*** seed=3"),
        ('a.password="two words" b=1', "a.password=*** b=1"),
        ("open postgresql://me:key@host/runs", "open postgresql://me:***@host/runs"),
        ("postgresql://me:a/b@c@host/runs", "postgresql://me:***@host/runs"),
        ("sqlite:////tmp/runs.db", "sqlite:////tmp/runs.db"),
        ("a.token=one,two", "a.token=***"),
        ("embedder.token_pooling=token", "embedder.token_pooling=token"),
        ("loss.token: expected a number", "loss.token: expected a number"),
    ],
)
def test_texts(text, masked):
    assert mask_text(text) == masked


def test_options():
    options = {"api_key": 1.5, "secret": {"a": "b"}, "token": None, "list": [{"password": 1}]}
    masked = {"api_key": "***", "secret": "***", "token": None, "list": [{"password": "***"}]}
    assert mask_options(options) == masked
    assert mask_options({"url": "x://a:b@h"}) == {"url": "x://a:***@h"}
