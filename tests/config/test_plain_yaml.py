"""YAML of others: read as plain values in no time, or refused in one line."""

import json
import time

import pytest
import yaml

from dml.config.plain_yaml import MAX_BYTES, read_plain_yaml
from dml.runs.folder.stored_run import State, read_run

TAGGED = ["int", "float", "bool", "timestamp", "binary", "null", "set", "omap", "merge", "value"]
WRONG = ['""', '"_"', '"-"', '"x"', '"1:1"', "[1]", "{a: 1}", '"0x"', '"."']


def write(tmp_path, text):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return path


def read_or_refuse(path):
    """Returns the content, and the message of the refusal; one of the two is None."""
    try:
        return read_plain_yaml(path), None
    except ValueError as error:
        return None, str(error)


@pytest.mark.parametrize("value", WRONG)
@pytest.mark.parametrize("tag", TAGGED)
def test_a_wrong_value_of_a_tag_is_one_line(tmp_path, tag, value):
    content, message = read_or_refuse(write(tmp_path, f"a: !!{tag} {value}\n"))
    if message is None:
        assert isinstance(content["a"], str | int | float | bool | None)
    else:
        assert len(message.splitlines()) == 1


LONG = MAX_BYTES - 100
BOMBS = {
    "base 60": "1" + ":1" * (LONG // 2),
    "base 60, a float": "1" + ":1" * (LONG // 2) + ".5",
    "underscores": "1" + "_" * LONG,
    "underscores, then a letter": "1" + "_" * LONG + "x",
    "digits": "1" * LONG,
    "digits of base 16": "0x" + "f" * LONG,
    "digits of base 2": "0b" + "1" * LONG,
    "digits of an exponent": "1e" + "9" * LONG,
    "points": "." * LONG,
    "signs": "-" * LONG,
    "quoted": '"' + "x" * LONG + '"',
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_long_values_take_no_time(tmp_path, bomb):
    path = write(tmp_path, f"seed: {bomb}\n")
    start = time.process_time()
    _, message = read_or_refuse(path)
    assert len(message or "") < 500
    assert time.process_time() - start < 20  # of the worst, before: hours


@pytest.mark.parametrize("text", ["1:30", "190:20:30", "1:30.5", "-1:0", "'0x' + 'f'"])
def test_numbers_in_base_60_are_refused_unless_quoted(tmp_path, text):
    if text[0] != "'":
        with pytest.raises(ValueError, match=r"line 2: .* is not read as a number; quote it"):
            read_plain_yaml(write(tmp_path, f"\nseed: {text}\n"))
    written = yaml.safe_dump({"name": text})  # quotes it
    assert read_plain_yaml(write(tmp_path, written)) == {"name": text}


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-5", 1e-5), ("1_000", 1000), ("1.5e3", 1500.0), (".5e1", 5.0), ("0x1f", 31), ("5.", 5.0)],
)
def test_numbers_are_read(tmp_path, text, value):
    assert read_plain_yaml(write(tmp_path, f"a: {text}\n")) == {"a": value}


@pytest.mark.parametrize("seed", [*(f"!!int {one}" for one in WRONG), "1:1:1:1", "1:1.5", "1__x"])
def test_a_run_with_such_a_config_is_damaged_and_hides_no_other(tmp_path, run_tiny, seed):
    _, folder = run_tiny("protocol.epochs=0")
    (folder / "summary.json").unlink()
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace("\nseed: 0\n", f"\nseed: {seed}\n"))
    assert read_run(folder).state == State.DAMAGED


@pytest.mark.parametrize("search", [{"a": {}}, {"params": []}, [], "x", {"complete": 1}])
def test_a_summary_with_another_search_is_damaged(run_tiny, search):
    _, folder = run_tiny("protocol.epochs=0")
    path = folder / "summary.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "search": search}))
    assert read_run(folder).state == State.DAMAGED
