import inspect
from pathlib import Path

import pytest
from hydra.utils import get_method, instantiate
from omegaconf import DictConfig, OmegaConf

from dml.config.resolvers import folder_name
from tests.data.trees import TREES, class_folders

CONFIGS = Path(__file__).parents[2] / "configs" / "data"
ALL = sorted(path.stem for path in CONFIGS.glob("*.yaml"))
BENCHMARKS = pytest.mark.parametrize("name", sorted(TREES))


def config(name: str, root: Path) -> DictConfig:
    loaded = OmegaConf.load(CONFIGS / f"{name}.yaml")
    assert isinstance(loaded, DictConfig)
    loaded.data.root = str(root)
    return loaded


def test_every_dataset_has_its_file():
    assert [
        *("cars", "cub", "custom", "digits", "emoji"),
        *("folder", "glyphs", "inshop", "sop"),
    ] == ALL


@pytest.mark.parametrize("name", [name for name in ALL if name != "custom"])
def test_file_names_itself_its_command_and_every_argument_of_its_reader(name: str, tmp_path: Path):
    lines = (CONFIGS / f"{name}.yaml").read_text().splitlines()
    assert lines[0] == "# @package _global_"
    assert lines[1].startswith(f"# python train.py data={name}")
    data = config(name, tmp_path).data
    assert data.name == (folder_name(str(tmp_path)) if name == "folder" else name)
    assert data.stand_in == (name in ("digits", "glyphs"))
    arguments = inspect.signature(get_method(data.reader._target_)).parameters
    assert set(data.reader) - {"_target_"} == set(arguments)
    for argument, parameter in arguments.items():
        if parameter.default is not parameter.empty:
            assert data.reader[argument] == parameter.default


@BENCHMARKS
def test_benchmarks_are_read_through_their_files(name: str, tmp_path: Path):
    TREES[name](tmp_path)
    data = config(name, tmp_path).data
    index = instantiate(data.reader, images=12, classes=4)
    assert (index.name, len(index.images)) == (name, 12)


def test_own_images_and_stand_ins_are_read_through_their_files(tmp_path: Path):
    class_folders(tmp_path)
    assert len(instantiate(config("folder", tmp_path).data.reader).images) == 12
    assert len(instantiate(config("digits", tmp_path).data.reader).images) == 1797
    glyphs = instantiate(config("glyphs", tmp_path).data.reader, classes=4, per_class=2)
    assert glyphs.name == "glyphs"


PAIRS = {  # what batches of losses of pairs hold under the protocol of the dataset
    **dict.fromkeys(("cub", "cars", "sop", "inshop"), ("random", None)),  # as the paper has it
    **dict.fromkeys(("digits", "folder", "custom"), ("class_stream", 4)),
    **dict.fromkeys(("glyphs", "emoji"), ("balanced", 4)),
}


@pytest.mark.parametrize("name", ALL)
def test_batches_follow_the_loss(composed, name: str):
    reader = ["data.reader._target_=my_data.read"] if name == "custom" else []
    data = composed(f"data={name}", "loss=contrastive", *reader).data
    assert (data.sampler, data.images_per_class) == PAIRS[name]
    data = composed(f"data={name}", "loss=mfcwms", *reader).data
    assert (data.sampler, data.images_per_class) == ("random", None)


@pytest.mark.parametrize("protocol", ["traditional", "validation", "metrix", "pfml"])
def test_own_images_get_pairs_under_every_protocol(composed, protocol: str):
    words = ("data=folder", f"protocol={protocol}", "loss=contrastive")
    data = composed(*words).data
    assert (data.sampler, data.images_per_class) == ("class_stream", 4)
    data = composed(*words, "data.sampler=random").data
    assert (data.sampler, data.images_per_class) == ("random", None)
