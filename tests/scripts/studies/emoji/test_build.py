import csv
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from dml.core.errors import UserError
from dml.data.emoji import read_emoji
from dml.data.prepare import prepare
from scripts.studies.emoji import build
from scripts.studies.emoji.build import prepare_emoji
from scripts.studies.emoji.sets import SETS
from tests.scripts.studies.emoji.packages import Renderer, emoji_source, packages, packed

READ = {"images": 36, "classes": 4, "fingerprint": None}


@pytest.fixture(autouse=True)
def renderer(monkeypatch):
    monkeypatch.setitem(sys.modules, "resvg_py", Renderer)


@pytest.fixture
def archives(tmp_path: Path) -> Path:
    return packed(tmp_path / "archives", packages())


def content(root: Path) -> dict[str, bytes]:
    files = sorted(path for path in (root / "emoji").rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def test_two_preparations_give_the_same_bytes(archives: Path, tmp_path: Path):
    source = emoji_source(archives)
    for name in ("one", "two"):
        prepare(source, tmp_path / name, [archives])
    assert content(tmp_path / "one") == content(tmp_path / "two")
    assert len(content(tmp_path / "one")) == 36 + 1
    first = read_emoji(tmp_path / "one", **READ)
    assert first.fingerprint() == read_emoji(tmp_path / "two", **READ).fingerprint()


def test_half_of_the_code_points_train_and_the_others_are_unseen(archives: Path, tmp_path: Path):
    prepare(emoji_source(archives), tmp_path, [archives])
    index = read_emoji(tmp_path, **READ)
    assert (index.name, index.stand_in, len(index.images)) == ("emoji", False, 36)
    assert index.labels.tolist() == np.repeat(range(4), 9).tolist()
    assert index.roles.tolist() == ["train"] * 18 + ["test"] * 18
    codes = [path.parent.name for path in index.images]
    assert len(set(codes)) == 4
    assert codes != sorted(codes)  # a random half, the same on every machine
    assert index.images[0].name == "noto.png"


def test_npm_fetches_the_packages_that_are_not_given(archives, tmp_path, monkeypatch):
    fetched = []

    def fetch(package, target, checksum):
        fetched.append(package)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(archives / target.name, target)
        return target

    monkeypatch.setattr(build, "pack", fetch)
    source, root = emoji_source(archives), tmp_path / "data"
    noto = archives / source.files[0].name
    prepare_emoji(root, [noto], source)
    assert fetched == [one.package for one in SETS[1:]]
    assert len(source.read(root).images) == 36
    assert sorted(path.name for path in root.iterdir()) == [".emoji.lock", "emoji"]
    prepare_emoji(root, [], source)  # complete: nothing is fetched
    assert len(fetched) == len(SETS) - 1


def test_without_npm_or_renderer_nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"npm is not installed.*@iconify-json/noto@1\.2\.9$"):
        prepare_emoji(tmp_path / "data")
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(UserError, match=r"pip install resvg-py=="):
        prepare_emoji(tmp_path / "data")


def test_absent_other_and_damaged_lists_name_the_command(archives: Path, tmp_path: Path):
    advice = rf"; run: python scripts/prepare_data\.py emoji --root {tmp_path}"
    with pytest.raises(UserError, match=rf"^data\.root: Emoji is not under .*{advice}$"):
        read_emoji(tmp_path)
    prepare(emoji_source(archives), tmp_path, [archives])
    with pytest.raises(UserError, match=r"found 36 of 9869 images .* and 4 of 1370 classes"):
        read_emoji(tmp_path)
    with pytest.raises(UserError, match=rf"other drawings .*{advice}.*reader\.fingerprint=\w+$"):
        read_emoji(tmp_path, images=36, classes=4)
    table = tmp_path / "emoji" / "drawings.csv"
    rows = list(csv.reader(table.read_text().splitlines()))
    for row, message in [
        (["0", "trial", *rows[1][2:]], "roles: unknown 'trial'"),
        (["a", *rows[1][1:]], "invalid literal for int.*'a'"),
    ]:
        lines = [rows[0], row, *rows[2:]]
        table.write_text("\n".join(map(",".join, lines)))
        with pytest.raises(UserError, match=f"drawings.csv is damaged: {message}.*{advice}"):
            read_emoji(tmp_path, **READ)
    table.write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match=rf"drawings.csv is damaged: .*{advice}"):
        read_emoji(tmp_path, **READ)
