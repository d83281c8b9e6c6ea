import inspect
from pathlib import Path

import pytest
from hydra.utils import get_method
from omegaconf import DictConfig, OmegaConf

from dml.config.resolvers import folder_name

CONFIGS = Path(__file__).parents[2] / "configs" / "data"
ALL = sorted(path.stem for path in CONFIGS.glob("*.yaml"))


def config(name: str, root: Path) -> DictConfig:
    loaded = OmegaConf.load(CONFIGS / f"{name}.yaml")
    assert isinstance(loaded, DictConfig)
    loaded.data.update(root=str(root), crop=None, images=None)
    return loaded


@pytest.mark.parametrize("name", [name for name in ALL if name != "custom"])
def test_file_names_itself_and_every_argument_of_its_reader(name: str, tmp_path: Path):
    data = config(name, tmp_path).data
    of_root = name in ("folder", "features")
    assert data.name == (folder_name(str(tmp_path)) if of_root else name)
    assert data.stand_in == (name in ("digits", "glyphs"))
    arguments = dict(inspect.signature(get_method(data.reader._target_)).parameters)
    arguments.pop("shared_classes", None)  # follows from the protocol
    assert set(data.reader) - {"_target_"} == set(arguments)
    for argument, parameter in arguments.items():
        # The classes of a user are shuffled, those of a program stay as they are.
        if parameter.default is not parameter.empty and argument != "split_seed":
            assert data.reader[argument] == parameter.default


PAIRS = {  # what batches of losses of pairs hold under the protocol of the dataset
    **dict.fromkeys(
        ("cub", "cars", "sop", "inshop", "inat"), ("random", None)
    ),  # as the paper has it
    **dict.fromkeys(("digits", "folder", "features", "custom"), ("class_stream", 4)),
    **dict.fromkeys(("glyphs", "emoji", "shapes"), ("balanced", 4)),
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
