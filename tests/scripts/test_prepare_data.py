import pytest

from tests.data.trees import class_folders, truncate
from tests.scripts.loading import load_script

main = load_script("prepare_data").main


def test_check_decodes_every_image_and_names_the_bad_ones(tmp_path, capsys):
    class_folders(tmp_path)
    command = ["folder", "--root", str(tmp_path), "--check"]
    assert main(command) == 0
    assert "all 12 images" in capsys.readouterr().out
    bad = [truncate(tmp_path / "class_1" / "2.jpg"), tmp_path / "class_3" / "0.jpg"]
    bad[1].write_text("no image")
    assert main(command) == 1
    error = capsys.readouterr().err.splitlines()
    assert len(error) == 3
    assert str(bad[0]) in error[0]
    assert str(bad[1]) in error[1]
    assert error[2].startswith(f"error: {tmp_path.name}: 2 images")


def test_script_prepares_what_needs_no_download(tmp_path, capsys):
    assert main(["digits", "--root", str(tmp_path)]) == 0
    assert "1,797 images, nothing to download" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["cup"], "'cup' is not a dataset; did you mean 'cub'?"),
        (["digits", "--url", "http://x"], "--archive and --url are for preparing"),
    ],
)
def test_command_that_makes_no_sense_is_explained(command, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(command)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
