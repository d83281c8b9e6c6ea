import shutil

import pytest

from dml.cli.prepare_command import PUBLISHED
from dml.data.preparation.sources import SOURCES
from tests.commands import prepare
from tests.data.trees import class_folders, truncate


def test_check_decodes_every_image_and_names_the_bad_ones(tmp_path, capsys):
    class_folders(tmp_path)
    command = ["folder", "--root", str(tmp_path), "--check"]
    assert prepare(command) == 0
    assert "all 12 images" in capsys.readouterr().out
    bad = [truncate(tmp_path / "class_1" / "2.jpg"), tmp_path / "class_3" / "0.jpg"]
    bad[1].write_text("no image")
    assert prepare(command) == 1
    error = capsys.readouterr().err.splitlines()
    assert len(error) == 3
    assert str(bad[0]) in error[0]
    assert str(bad[1]) in error[1]
    assert error[2].startswith(f"error: {tmp_path.name}: 2 of 12 images")
    assert "data.skip_corrupt=true" in error[2]


def test_check_lists_every_copy_between_classes(tmp_path, capsys):
    class_folders(tmp_path)
    for item in range(4):
        shutil.copy(tmp_path / "class_0/0.jpg", tmp_path / "class_3" / f"copy{item}.jpg")
    truncate(tmp_path / "class_1/2.jpg")
    assert prepare(["folder", "--root", str(tmp_path), "--check"]) == 1
    lines = capsys.readouterr().out.splitlines()
    first = tmp_path / "class_0/0.jpg"
    for item in range(4):
        assert f"equal: {first} and {tmp_path}/class_3/copy{item}.jpg" in lines
    assert "remove each from the class where it is wrong" in lines


def test_prepares_what_needs_no_download(tmp_path, capsys):
    assert prepare(["digits", "--root", str(tmp_path)]) == 0
    assert "1,797 images, nothing to download" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["cup"], "'cup' is not a dataset; did you mean 'cub'?"),
        (["digits", "--url", "http://x"], "--archive and --url are for preparing"),
    ],
)
def test_command_that_makes_no_sense_is_explained(command, message, capsys):
    assert prepare(command) == 2
    assert message in capsys.readouterr().err


def test_names_of_published_datasets():
    assert set(PUBLISHED) == set(SOURCES)
