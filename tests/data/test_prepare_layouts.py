"""Every published dataset from the files it is published as, through to its reader."""

import shutil
import tarfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from dml.core.errors import UserError
from dml.data.prepare import prepare
from dml.data.sources import SOURCES, DatasetSource
from tests.core.servers import Behavior, serving
from tests.data.trees import TREES


def publish(name: str, site: Path, tree: Path) -> DatasetSource:
    """Packs a small dataset into the files of the real one; returns how it is made ready."""
    real = SOURCES[name]
    TREES[name](tree)
    site.mkdir()
    for file in real.files:
        source, stem = tree / file.into, Path(file.name).stem
        inside = real.folder if file.into == "." else stem
        if (source / file.name).is_file():
            shutil.copy(source / file.name, site)
        elif file.name.endswith(".zip"):
            shutil.make_archive(str(site / stem), "zip", source, inside)
        else:
            with tarfile.open(site / file.name, "w:gz") as tar:
                tar.add(source / inside, inside)
    files = tuple(replace(file, md5=None) for file in real.files)
    return replace(real, files=files, read=partial(real.read, images=12, classes=4))


@pytest.mark.parametrize("breaks", [0, 3])
@pytest.mark.parametrize("name", sorted(TREES))
def test_whole_way_from_a_server_that_breaks_off(
    name: str, breaks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("dml.core.download.time.sleep", lambda seconds: None)
    dataset = publish(name, tmp_path / "site", tmp_path / "tree")
    root, said = tmp_path / "data", []
    behavior = Behavior(break_after=1000, breaks=breaks)
    with serving(tmp_path / "site", behavior) as address:
        urls = [f"{address}/{file.name}?download=1" for file in dataset.files]
        prepare(dataset, root, urls=urls, say=said.append)
        prepare(dataset, root, urls=urls, say=said.append)
    assert "ready, train with" in said[-2]
    assert "nothing to do" in said[-1]
    assert [path.name for path in root.iterdir() if path.name[0] != "."] == [dataset.folder]
    here, there = dataset.read(root), dataset.read(tmp_path / "tree")
    assert here.fingerprint() == there.fingerprint()


@pytest.mark.parametrize("name", sorted(TREES))
def test_files_that_are_here_already_are_taken_and_left(name: str, tmp_path: Path):
    dataset = publish(name, tmp_path / "my site", tmp_path / "tree")
    before = sorted((tmp_path / "my site").iterdir())
    prepare(dataset, tmp_path / "data", archives=before, say=lambda line: None)
    assert len(dataset.read(tmp_path / "data").images) == 12
    assert sorted((tmp_path / "my site").iterdir()) == before


def test_page_instead_of_the_archive_leaves_nothing(tmp_path: Path):
    dataset = publish("sop", tmp_path / "site", tmp_path / "tree")
    (tmp_path / "site" / dataset.files[0].name).write_text("<html>please log in</html>")
    with serving(tmp_path / "site", Behavior()) as address:
        urls = [f"{address}/{dataset.files[0].name}"]
        with pytest.raises(UserError, match="this is no archive; get the file again"):
            prepare(dataset, tmp_path / "data", urls=urls)
    assert not [path for path in (tmp_path / "data").iterdir() if path.name[0] != "."]
