"""Progress of long work in a log, which is no terminal."""

import pytest

from dml.core import progress
from dml.core.download import download
from dml.core.progress import show_progress


@pytest.fixture
def clock(monkeypatch):
    """A clock that advances by 25 seconds at each look."""
    seconds = iter(range(0, 10**6, 25))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(seconds))


@pytest.mark.parametrize(
    ("total", "line"), [(20, "embedding batch: 3 of 20, 15 %"), (None, "embedding batch: 3")]
)
def test_a_log_has_a_line_each_minute(capfd, clock, total, line):
    assert list(show_progress(range(20), "embedding batch", total)) == list(range(20))
    written = capfd.readouterr().err.splitlines()
    assert written[0] == line
    assert 5 <= len(written) <= 7


def test_a_log_has_a_line_of_a_download_each_minute(capfd, clock, tmp_path):
    (tmp_path / "images").write_bytes(bytes(6 << 20))
    url = (tmp_path / "images").as_uri()
    download(url, tmp_path / "received")
    first, *_ = capfd.readouterr().err.splitlines()
    assert first.startswith("downloading received: 3 of 6 MB")


def test_short_work_is_silent_in_a_log(capfd):
    list(show_progress(range(20), "embedding batch", 20))
    assert capfd.readouterr().err == ""
