"""Secrets in texts and options."""

import shlex

import pytest

from dml.core.secrets import is_secret_name, mask_options, mask_text, mask_word, mask_words
from tests.core.secret_forms import SECRET, WORDS


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


@pytest.mark.parametrize("value", ["false", "True", "null", "4", "1000"])
def test_an_option_of_a_network_is_no_secret(value):
    """As `class_token` of vision transformers in timm."""
    name = "backbone.args.class_token"
    texts = (
        f"{name}={value}",
        f"python train.py +{name}={value} seed=3",
        f"error: cannot parse '{name}={value}'; seed=3",
        f"+backbone.args={{class_token:{value},depth:3}}",
        f"{{'class_token': {value}, 'depth': 3}}",
    )
    for text in texts:
        assert mask_text(text) == text
    assert mask_word(texts[0]) == texts[0]
    assert mask_options({"class_token": False, "num_token": 4}) == {
        "class_token": False,
        "num_token": 4,
    }


@pytest.mark.parametrize(
    "text",
    [
        "a.token=true love b=1",
        "a.token='true love' b=1",
        "a.password=1000",
        "a.token=123456",
        "a.token=4f",
        "{token: true love, b: 1}",
    ],
)
def test_what_only_begins_as_an_option_of_a_network(text):
    masked = mask_text(text)
    assert "***" in masked
    for part in ("love", "1000", "123456", "4f"):
        assert part not in masked


def test_numbers_as_passwords():
    assert mask_options({"password": 1000, "token": 123456}) == {"password": "***", "token": "***"}
    assert mask_word("a.password=1000") == "a.password=***"


def test_options():
    options = {"api_key": 1.5, "secret": {"a": "b"}, "token": None, "list": [{"password": 1}]}
    masked = {"api_key": "***", "secret": "***", "token": None, "list": [{"password": "***"}]}
    assert mask_options(options) == masked
    assert mask_options({"url": "x://a:b@h"}) == {"url": "x://a:***@h"}


@pytest.mark.parametrize("word", WORDS)
def test_a_planted_secret(word):
    key, _, value = word.partition("=")
    commands = shlex.join(["train.py", word, "seed=3"]), shlex.join(mask_words([word, "seed=3"]))
    shown = [
        mask_word(word),
        mask_text(f"error: {word} is wrong"),
        mask_text(f"error: cannot parse {word!r}; seed=3"),
        *map(mask_text, commands),
        str(mask_options({"a": [{"b": word}]})),
        str(mask_options({"a": (word,), key.lstrip("+"): value})),
    ]
    for text in shown:
        assert SECRET not in text
        assert "***" in text
    assert all(text.endswith("seed=3") for text in map(mask_text, commands))


@pytest.mark.parametrize(
    "text",
    [
        "loss.token: expected a number",
        "https://host/a.pth?version=2#top",
        "me@host and https://host:8080/a",
        "postgresql://me@host/runs",
        "embedder={token_pooling:token,size:3}",
        "Basic losses are plain",
        "loss=ms seed=3 note='no secrets: none'",
    ],
)
def test_what_is_no_secret_stays(text):
    assert mask_text(text) == text
    assert mask_word(text) == text


@pytest.mark.parametrize(
    "advice",
    [
        "accept the terms of the model, with HF_TOKEN=<token>",
        "set HF_TOKEN=<token>; without a network, copy HF_HOME",
        "add tracking.api_key=<key>, or search.storage.password=<password>.",
        "add tracking.api_key=<value> in the shell",
    ],
)
def test_placeholders_of_our_own_advice_stay(advice):
    assert mask_text(advice) == advice


@pytest.mark.parametrize("value", ["<token>abc", "<abc>", "<token", "token>", "<token><key>x"])
def test_what_only_looks_like_a_placeholder_is_masked(value):
    assert value not in mask_text(f"error: HF_TOKEN={value}; seed=3")
    assert value not in mask_text(f"a.api_key={value} b=1")
