import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from dml.core.errors import UserError
from dml.data.preparation.prepare import prepare
from dml.data.readers.emoji import read_emoji
from studies import packages as fetching
from studies.emoji.build import EMOJI
from studies.emoji.drawings import check_renderer
from studies.emoji.sets import SETS
from studies.packages import prepare_packages
from tests.studies.emoji.packages import Renderer, emoji_source, packages, packed

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

    def fetch(file, folder):
        fetched.append(file.home)
        folder.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(archives / file.name, folder))

    monkeypatch.setattr(fetching, "fetch", fetch)
    source, root = emoji_source(archives), tmp_path / "data"
    noto = archives / source.files[0].name
    prepare_packages(source, root, [noto])
    assert fetched == [f"npm pack {one.package}" for one in SETS[1:]]
    assert len(source.read(root).images) == 36
    assert sorted(path.name for path in root.iterdir()) == [".emoji.lock", "emoji"]
    prepare_packages(source, root)  # complete: nothing is fetched
    assert len(fetched) == len(SETS) - 1


def test_without_npm_or_renderer_nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"npm is not installed.*@iconify-json/noto@1\.2\.9$"):
        prepare_packages(EMOJI, tmp_path / "data", check=check_renderer)
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(UserError, match=r"pip install resvg-py=="):
        prepare_packages(EMOJI, tmp_path / "data", check=check_renderer)
