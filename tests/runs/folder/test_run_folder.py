import json
import shlex

from tests.conftest import TINY


def test_a_folder_tells_what_differs_and_how_it_was_made(command_line, tmp_path):
    words = [*TINY, f"outputs={tmp_path}", "optim.lr=3e-3"]
    status, _, err = command_line(*words, "name=first try", "note=3 lr")
    assert status == 0, err
    (folder,) = tmp_path.glob("single/*/seed0-epochs2-*lr0.003-size8-width4-*")
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["name"], summary["note"]) == ("first try", "3 lr")
    command = shlex.split((folder / "command.txt").read_text())
    assert command == ["python", "train.py", *words, "name=first try", "note=3 lr"]

    # The same run typed otherwise is found, and takes the new name.
    status, out, err = command_line(*reversed(words), "seed=0", "name=second")
    assert status == 0, err
    assert "finished before" in out
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["name"], summary["note"]) == ("second", "3 lr")
    assert len(list(tmp_path.glob("single/*/*"))) == 1
