"""A plugin of pytest: writes a line of JSON for each test that fails, and how it failed.

Loaded by `-p report_plugin`; the environment variable in `FILE` has the path of the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path

import pytest

FILE = "PLANTED_MISTAKE_REPORT"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds a line if this phase of the test failed: test, phase, names of the exception's bases."""
    report = yield
    if report.failed and call.excinfo is not None:
        bases = [base.__name__ for base in call.excinfo.type.__mro__]
        line = json.dumps({"test": item.nodeid, "phase": call.when, "bases": bases})
        with Path(os.environ[FILE]).open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
    return report
