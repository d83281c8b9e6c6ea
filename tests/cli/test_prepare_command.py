import shutil
from dataclasses import replace
from functools import partial

import pytest

from dml.cli.prepare_command import OF_ALL, PUBLISHED
from dml.core.errors import UserError
from dml.data.preparation.sources import SOURCES
from dml.data.readers.inat import read_inat
from tests.commands import prepare
from tests.data.trees import class_folders, inat_tree, truncate


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


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("notanaddress", "--url 'notanaddress': not an address"),
        ("photos.zip=https://x/y.zip", "cub has no file photos.zip"),
    ],
)
def test_addresses_are_checked_before_weights_are_downloaded(
    url, message, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("dml.cli.prepare_command._fetch_first", lambda _: pytest.fail("download"))
    assert prepare(["cub", "--url", url, "--root", str(tmp_path)]) == 1
    assert message in capsys.readouterr().err


def test_names_of_published_datasets():
    assert set(PUBLISHED) == set(SOURCES)


@pytest.mark.parametrize("name", [*PUBLISHED, "all"])
def test_a_list_has_everything_that_another_program_needs(name, capsys):
    assert prepare([name, "--list"]) == 0
    text = capsys.readouterr().out
    for dataset in OF_ALL if name == "all" else [name]:
        for file in SOURCES[dataset].files:
            assert file.name in text
            assert all(f"    {address}\n" in text for address in file.addresses)
            assert file.checksum is None or file.checksum.digits in text
            (line,) = [line for line in text.splitlines() if line.startswith(f"  {file.name}  ")]
            size = "size unknown" if file.size is None else f"{file.size:,} bytes"
            assert f", {size}  from " in line.replace("about ", "")


@pytest.fixture
def fetched(monkeypatch):
    """Names of the networks whose weights were asked for."""
    names = []
    monkeypatch.setattr("dml.runs.build.fetch_weights", names.append)
    return names


def test_weights_come_before_the_dataset(fetched, tmp_path, monkeypatch, capsys):
    made = []
    monkeypatch.setattr(
        "dml.data.preparation.prepare.prepare", lambda dataset, *rest: made.append(dataset.name)
    )
    root = ["--root", str(tmp_path)]
    assert prepare(["cub", *root]) == 0
    assert prepare(["cars", *root, "--no-weights"]) == 0
    assert prepare(["sop", *root, "--backbone", "resnet50", "--backbone", "dino_s16"]) == 0
    assert prepare(["weights", "--backbone", "vit_s16"]) == 0
    assert prepare(["all", *root]) == 0
    assert prepare(["inat", *root]) == 0
    of_all = ["bn_inception"] * 4
    assert fetched == ["bn_inception", "resnet50", "dino_s16", "vit_s16", *of_all, "resnet50"]
    assert made == ["cub", "cars", "sop", *OF_ALL, "inat"]
    assert {*OF_ALL, "inat"} == {*PUBLISHED}


def test_without_weights_no_dataset_is_downloaded(tmp_path, monkeypatch, capsys):
    def fail(name):
        raise UserError("backbone.weights: dead")

    monkeypatch.setattr("dml.runs.build.fetch_weights", fail)
    assert prepare(["cub", "--root", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert error == "error: backbone.weights: dead; --no-weights prepares the dataset alone\n"


def test_one_dataset_that_fails_does_not_stop_the_others(fetched, tmp_path, monkeypatch, capsys):
    made = []

    def make(dataset, *rest):
        if dataset.name == "cars":
            raise UserError("no address has car_ims.tgz")
        made.append(dataset.name)

    monkeypatch.setattr("dml.data.preparation.prepare.prepare", make)
    assert prepare(["all", "--root", str(tmp_path)]) == 1
    assert made == ["cub", "sop", "inshop"]
    assert capsys.readouterr().err.splitlines()[-1] == "error: not ready: cars"


@pytest.mark.parametrize(
    "words",
    [
        ["digits", "--no-weights"],
        ["glyphs", "--backbone", "resnet50"],
        ["digits", "--list"],
        ["all", "--check"],
        ["all", "--url", "http://x"],
        ["weights", "--archive", "x"],
    ],
)
def test_options_without_a_meaning_are_refused(words, capsys):
    assert prepare(words) == 2
    assert capsys.readouterr().err.startswith("error: --")


def test_a_check_of_inat_decodes_an_image_of_each_species(tmp_path, monkeypatch, capsys):
    """The first of each is decoded; another one may be damaged, but must be there."""
    folder = inat_tree(tmp_path) / "inat" / "train_val2018"
    source = replace(SOURCES["inat"], read=partial(read_inat, images=12, classes=4))
    monkeypatch.setitem(SOURCES, "inat", source)
    truncate(folder / "Aves/0/0002.jpg")
    words = ["inat", "--root", str(tmp_path), "--check"]
    assert prepare(words) == 0
    printed = capsys.readouterr().out
    assert "inat: 12 images are there; decoding one of each class\n" in printed
    assert printed.endswith("inat: one image of each class can be decoded\n")
    truncate(folder / "Fungi/1/0300.jpg")
    assert prepare(words) == 1
    assert "0300.jpg" in capsys.readouterr().err
    (folder / "Aves/0/0002.jpg").unlink()
    assert prepare(words) == 1
    assert "found 11 of 12 images" in capsys.readouterr().err


def test_the_size_of_inat_is_said_before_it_is_downloaded(tmp_path, monkeypatch, capsys):
    assert prepare(["inat", "--list"]) == 0
    assert "120 GB to download" in capsys.readouterr().out
    said = []

    def refuse(addresses, path, *rest, **options):
        said.append(capsys.readouterr().out)
        raise UserError("no address answers")

    monkeypatch.setattr("dml.data.preparation.prepare.download", refuse)
    assert prepare(["inat", "--root", str(tmp_path), "--no-weights"]) == 1
    assert "train_val2018.tar.gz: 120 GB to download" in said[0]
