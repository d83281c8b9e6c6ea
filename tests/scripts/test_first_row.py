"""`make first-row` without a GPU: from an empty folder to a score, with a local server."""

import hashlib
import re
import tarfile
from dataclasses import replace
from functools import partial

import pytest

from dml.core.download import Checksum
from dml.data.preparation.sources import SOURCES
from dml.results.published import find_results
from scripts.first_row import main
from scripts.rows.off_the_shelf import CHOICES, EXPERIMENT, METRIC, Score, hash_files, list_files
from tests.core.servers import Behavior, serving
from tests.data.trees import cub_tree

SMALL = {"images": 12, "classes": 4}


@pytest.fixture(scope="module")
def cell():
    """The cell of the first row."""
    from dml.results.catalog import list_cells

    (cell,) = list_cells(EXPERIMENT, CHOICES)
    return cell


def test_the_line_has_ours_oml_s_and_the_difference(cell):
    """OML prints 0.627 for vits16_dino on CUB's boxes."""
    (key,) = cell.result_keys()
    (published,) = find_results(key, METRIC, "oml", ["zoo"])
    summary = {"metrics": {METRIC: {"mean": 0.6312}}}
    score = Score("boxes", cell, summary, published)
    assert score.line == "boxes: Recall@1 63.1, OML 62.7, difference +0.4"
    assert replace(score, published=None).line == "boxes: Recall@1 63.1, nothing published"


def test_the_checksum_is_of_the_files_in_their_order_without_boxes(tmp_path):
    for name in "ba":
        (tmp_path / name).write_bytes(name.encode() * 3)
    images = [tmp_path / "b#0,0,1,1", tmp_path / "a", tmp_path / "b#1,1,2,2"]
    assert list_files(images) == [tmp_path / "a", tmp_path / "b"]
    assert hash_files(list_files(images)) == hashlib.sha256(b"aaabbb").hexdigest()


@pytest.fixture
def small_cub(tmp_path, monkeypatch):
    """A folder with the archive of a small CUB with boxes; the sources have its checksum."""
    tree = cub_tree(tmp_path / "tree")
    boxes = "".join(f"{number} 2.0 3.0 30.0 20.0\n" for number in range(1, 13))
    (tree / "CUB_200_2011" / "bounding_boxes.txt").write_text(boxes)
    site = tmp_path / "site"
    site.mkdir()
    with tarfile.open(site / "CUB_200_2011.tgz", "w:gz") as tar:
        tar.add(tree / "CUB_200_2011", "CUB_200_2011")
    real = SOURCES["cub"]
    digits = hashlib.md5((site / "CUB_200_2011.tgz").read_bytes()).hexdigest()
    file = replace(real.files[0], checksum=Checksum("md5", digits), addresses=())
    source = replace(real, files=(file,), read=partial(real.read, **SMALL))
    monkeypatch.setitem(SOURCES, "cub", source)
    return site


@pytest.fixture
def random_weights(tmp_path):
    """A folder that has the network of the first row with random weights, as the hub has it."""
    import timm
    from safetensors.torch import save_file

    folder = tmp_path / "models" / "timm" / "vit_small_patch16_224.dino"
    folder.mkdir(parents=True)
    network = timm.create_model("vit_small_patch16_224.dino", pretrained=False)
    save_file(network.state_dict(), folder / "model.safetensors")
    return tmp_path / "models"


@pytest.mark.soak
def test_from_an_empty_folder_to_a_block_for_an_issue(
    small_cub, random_weights, tmp_path, monkeypatch, capsys
):
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    small = [f"data.reader.{name}={count}" for name, count in SMALL.items()]
    small.append("data.batch_size=2")  # of a training run, which there is not
    hub = Behavior(hub=True)
    with serving(small_cub, Behavior()) as mirror, serving(random_weights, hub) as address:
        template = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setenv("DML_MIRROR", mirror)
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", address)
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
        assert main(small) == 0
    printed = capsys.readouterr().out
    block = printed.partition("```\n")[2].partition("\n```")[0].splitlines()
    assert re.fullmatch(r"boxes, .*: Recall@1 [\d.]+, OML 62.7, difference -[\d.]+", block[0])
    assert re.fullmatch(r"whole images, .*: Recall@1 [\d.]+, nothing published", block[1])
    weights = random_weights / "timm" / "vit_small_patch16_224.dino" / "model.safetensors"
    assert f"weights: sha256 {hash_files([weights])}" in block
    assert [line.partition(":")[0] for line in block[2:]] == [
        "network",
        "revision",
        "processor",
        "versions",
        "weights",
        "images",
    ]
    folders = [path.parent.name for path in (work / "outputs").glob("off_the_shelf/*/*")]
    assert sorted(name.partition("-")[0] for name in folders) == ["cub", "cub_boxes"]
    # a second call repeats nothing, and asks nobody
    assert main(small) == 0
    assert "difference" in capsys.readouterr().out
