import pytest

from dml.config.command_line import (
    choices_for_help,
    list_groups,
    refuse_empty,
    refuse_repeated,
    split_flags,
)
from dml.core.errors import ConfigError


@pytest.mark.parametrize(
    ("typed", "flags", "others"),
    [
        ("seed=0 -m loss=ms,c1", "-m", "seed=0 loss=ms,c1"),
        ("~search --config-dir here --cfg=job seed=1", "--config-dir here --cfg=job",
         "~search seed=1"),
        ("seed=1 --info seed=2 --lr", "--info", "seed=1 seed=2 --lr"),
    ],
)  # fmt: skip
def test_flags_are_found_anywhere(typed, flags, others):
    assert split_flags(typed.split()) == (flags.split(), others.split())


def test_help_lists_groups_and_choices():
    listed = [line.partition(":")[0] for line in choices_for_help().splitlines()]
    assert {"loss", "data", "protocol", "params", "search"} <= set(listed)
    assert "recipe" not in listed
    assert set(list_groups("evaluate")) == set(list_groups())


def test_a_group_is_chosen_once():
    refuse_repeated(["data=cub", "loss=ms", "data=cub", "optim.lr=1", "optim.lr=2"])
    with pytest.raises(ConfigError, match="data: chosen twice, by data=cub and data=sop"):
        refuse_repeated(["data=cub", "loss=ms", "data=sop"])


@pytest.mark.parametrize("word", ["outputs=", "run=''", '+data.root=""', "params=", "embeddings="])
def test_paths_are_not_empty(word):
    refuse_empty(["outputs=.", "note=", "data=cub", "run"])
    name = word.lstrip("+").partition("=")[0]
    with pytest.raises(ConfigError, match=f"^{name}: is empty; give a path"):
        refuse_empty(["data=cub", word])
