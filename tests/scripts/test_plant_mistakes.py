"""Planted mistakes: what counts as found, what is refused, and that nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
import yaml

sys.path.append(str(Path(__file__).parents[2] / "scripts"))  # its `clone`
from scripts import plant_mistakes
from scripts.mistakes.catalog import load_mistakes
from scripts.mistakes.planting import check_mistakes

ROOT = Path(__file__).parents[2]
MODULE = '''
import time

RATE = 0.25


class Basket:
    """Prices of goods."""

    def __init__(self, prices):
        self.prices = prices

    def total(self):
        return sum(self.prices)

    def mean(self):
        if not self.prices:
            raise ValueError("prices: none")
        return (sum(self.prices)
                / len(self.prices))


def total(prices):
    return sum(prices) + sum([])
'''
TESTS = """
import pytest

from shop.baskets import RATE, Basket, total


@pytest.fixture
def basket():
    basket = Basket([1, 3])
    assert len(basket.prices) == 2
    return basket


def test_rate(basket):
    assert RATE > 0


def test_total(basket):
    assert basket.total() == 4


def test_mean(basket):
    assert basket.mean() == 2
    with pytest.raises(ValueError, match="none"):
        Basket([]).mean()
"""


def entry(name, definition, code, mistake):
    """An entry of a file of mistakes in the shop."""
    return {
        "name": name,
        "wrong": "a total",
        "definition": f"shop.baskets{definition}",
        "code": code,
        "mistake": mistake,
        "tests": ["tests/test_baskets.py"],
    }


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """Returns a function that runs the command in a small repository with some mistakes."""
    root, catalog = tmp_path / "shop", tmp_path / "catalog"
    for path, text in {"shop/baskets.py": MODULE, "tests/test_baskets.py": TESTS}.items():
        (root / path).parent.mkdir(parents=True)
        (root / path).write_text(text)
    (root / ".gitignore").write_text("ignored\n__pycache__\n")
    (root / "ignored").write_text("")
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    catalog.mkdir()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    # loading the plugins takes most of the time
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "xdist.plugin")

    def run(entries, *words, processes=1):
        (catalog / "room.yaml").write_text(yaml.safe_dump(entries))
        before = read_all(root)
        status = plant_mistakes.main([f"--processes={processes}", *words], root, catalog)
        assert read_all(root) == before
        assert not [*(tmp_path / "tmp").iterdir()]
        return status

    run.root = root
    return run


def read_all(root):
    paths = [path for path in root.rglob("*") if path.is_file()]
    return {path: path.read_bytes() for path in paths if ".git" not in path.parts}


def test_tests_find_by_assertions_and_exceptions_of_their_calls(shop, capsys):
    entries = [
        entry("assertion", ".Basket.total", "sum(self.prices)", "max(self.prices)"),
        entry("no-exception", ".Basket.mean", "if not self.prices:", "if self.prices is None:"),
        entry("exception", ".Basket.mean", "sum(self.prices) / len", "1 / 0 / len"),  # wrapped
        entry("nothing", ".total", "sum([])", "sum([0])"),
        entry("import", "", "import time", "import no_such_module"),
        entry("set-up", ".Basket.__init__", "= prices", "= None"),
        entry("name", ".Basket.total", "sum(self.prices)", "summ(self.prices)"),
    ]
    assert shop(entries, processes=2) == 1
    out = capsys.readouterr().out
    rows = dict(line.strip("| ").split(" | ")[:2] for line in out.splitlines() if "| " in line)
    test = "tests/test_baskets.py::test"
    assert rows["assertion"] == f"{test}_total"
    assert rows["no-exception"] == rows["exception"] == f"{test}_mean"
    assert rows["nothing"] == "**not found**: no test fails"
    assert rows["import"] == "**not found**: pytest ends with status 2 before a test fails"
    assert rows["set-up"] == f"**not found**: setup of {test}_rate: TypeError"
    assert rows["name"] == f"**not found**: call of {test}_total: NameError"
    assert "3 of 7 found, 3 by the nearest test file; 0 small" in out
    assert "not found: nothing: a total; no test fails" in out


def test_the_unchanged_copy_must_pass(shop, capsys):
    test = shop.root / "tests/test_baskets.py"
    test.write_text(TESTS.replace("== 4", "== 5"))
    assert shop([entry("assertion", ".Basket.total", "sum", "max")]) == 1
    captured = capsys.readouterr()
    assert "the unchanged copy fails its tests" in captured.err
    assert "test_total" in captured.err
    assert "found" not in captured.out


def test_tests_that_take_long_find_nothing(shop, capsys):
    entries = [entry("slow", ".Basket.total", "return", "time.sleep(99); return")]
    assert shop(entries, "--seconds=3") == 1
    assert "| slow | **not found**: its tests take more than 3 s | 3 |" in capsys.readouterr().out


def test_an_interrupted_run_leaves_nothing_behind(shop, tmp_path, capsys):
    marker = tmp_path / "marker"
    wait = f"import os; open({str(marker)!r}, 'w').write(str(os.getpid())); time.sleep(99); return"
    stopping = threading.Thread(target=terminate_after, args=[marker])
    stopping.start()
    assert shop([entry("slow", ".Basket.total", "return", wait)]) == 128 + signal.SIGTERM
    stopping.join()
    with pytest.raises(ProcessLookupError):
        os.kill(int(marker.read_text()), 0)


def terminate_after(marker):
    """Sends SIGTERM to this process once a file has been written."""
    end = time.monotonic() + 60
    while not (marker.exists() and marker.read_text()) and time.monotonic() < end:
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGTERM)


def test_mistakes_that_do_not_fit_are_refused_together(shop, capsys):
    entries = [
        entry("nowhere", ".Basket.total", "no such code", "0"),
        entry("twice", ".total", "sum(", "max("),
        entry("no-module", "_of_others.total", "sum", "max"),
        entry("no-definition", ".Basket.sum", "sum", "max"),
        entry("same", ".Basket.total", "sum", "sum"),
        entry("no-python", ".RATE", "0.25", "0.25)"),
        entry("no-test", ".RATE", "0.25", "-1") | {"tests": ["tests/test_no.py"]},
    ]
    assert shop(entries) == 2
    lines = capsys.readouterr().err.splitlines()
    once = "it must occur exactly once"
    assert lines[:3] == [
        f"error: nowhere: its code fits nowhere in shop.baskets.Basket.total; {once}",
        f"error: twice: its code fits 2 times in shop.baskets.total; {once}",
        "error: no-module: there is no module for shop.baskets_of_others.total",
    ]
    names = [line.removeprefix("error: ").partition(":")[0] for line in lines]
    assert names == [mistake["name"] for mistake in entries]


def test_entries_are_checked(shop, capsys):
    first = entry("a", ".RATE", "0.25", "1")
    wrong = {**first, "name": "b", "test": [], "tests": "tests"}
    del wrong["code"]
    assert shop([first, wrong, first]) == 2
    err = capsys.readouterr().err
    assert "room.yaml: entry 2: test is no key of a mistake; did you mean 'tests'?" in err
    assert "entry 2: code is missing" in err
    assert "entry 2: tests must be of type list" in err
    assert "a: 2 mistakes" in err


def test_a_room_or_names_choose(shop, capsys):
    entries = [entry(name, ".RATE", "0.25", "-1") for name in ("first", "second")]
    assert shop(entries, "--list", "--only", "second") == 0
    assert capsys.readouterr().out == "room: second: a total (tests/test_baskets.py)\n"
    assert shop(entries, "--room=rom", "--only", "secnd") == 2
    err = capsys.readouterr().err
    assert "--room: no 'rom'; did you mean 'room'?; room" in err
    assert "--only: no mistake 'secnd'; did you mean 'second'?" in err


def test_all_mistakes_of_this_repository_fit():
    check_mistakes(load_mistakes(), ROOT)
