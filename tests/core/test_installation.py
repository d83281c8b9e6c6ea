import pytest

from dml.core import installation
from dml.core.installation import SCRIPTS, shell_command


def test_a_clone_is_used_by_its_scripts():
    assert shell_command("train") == "python train.py"
    for script in SCRIPTS.values():
        assert (installation.CLONE / script).is_file()


@pytest.mark.parametrize("name", SCRIPTS)
def test_an_installed_command_names_installed_commands(name, monkeypatch):
    monkeypatch.setattr("sys.argv", ["/somewhere/bin/dml-train", "data=cub"])
    assert shell_command(name) == f"dml-{name}"


def test_a_wheel_has_no_scripts(monkeypatch):
    monkeypatch.setattr(installation, "CLONE", None)
    assert shell_command("prepare") == "dml-prepare"
