import json
import os
import time

import pytest

from dml.cli.runs_command import main


@pytest.fixture
def folders(tmp_path):
    """Run folders in each state; returns the folder of all."""
    contents = {
        "finished": {
            "config.yaml": "a: 1",
            "summary.json": {"metrics": {"map_at_r": {"mean": 0.5}}},
        },
        "half": {"config.yaml": "a: 1"},
        "broken": {"summary.json": "{"},
        "other": {"summary.json": {"metrics": {}}},
        "empty": {},
        "reports": {"page.html": ""},
    }
    for age, (name, files) in enumerate(contents.items()):
        folder = tmp_path / "outputs" / "single" / "digits" / name
        folder.mkdir(parents=True)
        for file, content in files.items():
            text = content if isinstance(content, str) else json.dumps(content)
            (folder / file).write_text(text)
            then = time.time() - 3600.5 * age
            os.utime(folder / file, (then, then))
    return tmp_path / "outputs"


def test_runs_in_every_state(folders, capsys):
    assert main([str(folders)]) == 0
    lines = capsys.readouterr().out.splitlines()
    home = folders / "single" / "digits"
    assert lines[0].split() == ["finished", "50.00", "0", "s", str(home / "finished")]
    assert lines[1].split() == ["unfinished", "-", "1", "h", str(home / "half")]
    assert lines[2].split()[:4] == ["damaged", "-", "2", "h"]
    assert "summary.json is damaged" in lines[2]
    assert "summary.json has no map_at_r" in lines[3]
    assert len(lines) == 4


def test_no_runs(tmp_path, capsys):
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"no runs in {tmp_path}; python train.py makes one\n"
    assert main([str(tmp_path / "none")]) == 1
    assert capsys.readouterr().err.startswith("error: runs: there is no folder")
