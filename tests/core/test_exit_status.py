import re
import signal
from pathlib import Path

from dml.core.exit_status import ExitStatus

ROOT = Path(__file__).resolve().parents[2]


def test_signals_follow_the_convention_of_shells():
    assert ExitStatus.INTERRUPTED == 128 + signal.SIGINT
    assert ExitStatus.TERMINATED == 128 + signal.SIGTERM


def test_users_find_every_status_in_the_help():
    help_text = (ROOT / "configs" / "train.yaml").read_text().partition("Exit status")[2]
    assert {int(number) for number in re.findall(r"\d+", help_text)} == set(ExitStatus)
