import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from dml.config.check import check
from dml.config.compatibility import notes
from dml.config.identity import digest, identity
from dml.config.schema import Config
from dml.core.errors import ConfigError


def problems(cfg):
    with pytest.raises(ConfigError) as caught:
        check(cfg, Config)
    return caught.value.problems


def test_the_default_is_fine_and_typed(composed):
    config = check(composed(), Config)
    assert config.data.batch_size == 128
    assert config.protocol.stopping.patience == 5
    assert isinstance(config.optim.loss_lr_ratio, float)


def test_all_problems_at_once(composed):
    found = problems(
        composed(
            "data.batch_size=abc",
            "seed=-1",
            "optim.lr=nan",
            "data.sampler=rando",
            "protocol.stopping.unit=weeks",
            "+data.batchsize=3",
            "device=gpu",
        )
    )
    assert sorted(line.split(":")[0] for line in found) == [
        "data.batch_size",
        "data.batchsize",
        "data.sampler",
        "device",
        "optim.lr",
        "protocol.stopping.unit",
        "seed",
    ]
    assert "did you mean 'random'?" in "\n".join(found)
    assert "did you mean 'data.batch_size'?" in "\n".join(found)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["data.sampler=class_stream", "data.images_per_class=7", "data.batch_size=120"],
            "data.batch_size: batch 120 must be a multiple of 7 images per class "
            "(nearest 119, 126)",
        ),
        (
            ["data.sampler=class_stream"],
            "data.images_per_class: sampler 'class_stream' needs a number",
        ),
        (
            [
                "data.sampler=class_stream",
                "data.images_per_class=1",
                "loss.batch_kind=pair",
            ],
            "data.images_per_class: loss 'mfcwms' compares pairs of one class and 1 image per "
            "class leaves none; use 2 or more",
        ),
        (
            ["transform.augmentation=random_resized_crop"],
            "transform.size: backbone 'small_cnn' takes images of any size; say which, for "
            "example transform.size=64",
        ),
        (
            ["optim.clip_value=0"],
            "optim.clip_value: 0.0 must be a number greater than 0; null switches it off",
        ),
    ],
)
def test_messages(composed, overrides, message):
    assert problems(composed(*overrides)) == [message]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seed=null", "seed: null must be a whole number"),
        ("data.batch_size=abc", "data.batch_size: 'abc' must be a whole number"),
        ("max_minutes=abc", "max_minutes: 'abc' must be a number or null"),
        ("overwrite=maybe", "overwrite: 'maybe' must be true or false"),
        ("optim.args=null", "optim.args: null must be a node of options"),
        ("transform.scale=3", "transform.scale: 3 must be a list, each a number"),
        ("seed=${foo}", "seed: '${foo}' refers to what is not there: Interpolation key 'foo' not "),
        ("loss.name=null", "loss.name: null must be text"),
        ("loss.name=[a]", "loss.name: ['a'] must be text"),
        ("loss.name=../../x", "loss.name: '../../x' is part of the run folder's name"),
        ("data.name=..", "data.name: '..' is part of the run folder's name"),
        ("experiment.id=a/b", "experiment.id: 'a/b' is part of the run folder's name"),
        ("~loss.batch_kind", "loss.batch_kind: missing; give it a value"),
        ("~method._target_", "method._target_: missing; give it a value"),
        ("outputs=", "outputs: '' is no folder"),
        ("outputs=/dev/null/x", "outputs: cannot be made below /dev/null, which is no folder"),
        ("+optim.groups.head.lr=abc", "optim.groups.head.lr: 'abc' must be a number, at least 0"),
        ("+optim.groups.head=3", "optim.groups.head: 3 must be options, such as {lr: 1e-3}"),
    ],
)
def test_every_option_says_what_it_takes(composed, override, message):
    assert problems(composed(override))[0].startswith(message)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("trials=0", "search.trials: 0 must be at least 1"),
        ("startup=0", "search.startup: 0 must be at least 1"),
        ("lease_seconds=0", "search.lease_seconds: 0.0 must be a number, at least 1"),
        ("sampler=gpp", "search.sampler: no 'gpp'; did you mean 'gp'?; one of gp | tpe"),
    ],
)
def test_searches_that_cannot_be(composed, override, message):
    assert problems(composed("search=bayes", "protocol=mlrc", f"search.{override}")) == [message]


def test_absent_gpu(composed, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert problems(composed("device=cuda")) == [
        "device: cuda asked for, but this machine has none; use device=cpu"
    ]
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    check(composed("device=cuda:1"), Config)
    assert problems(composed("device=cuda:2")) == [
        "device: cuda:2 asked for, but the last of 2 is cuda:1"
    ]


def test_missing_node_is_named(composed):
    cfg = composed()
    OmegaConf.set_struct(cfg, False)
    del cfg["protocol"]
    assert "protocol.epochs: missing; give it a value" in problems(cfg)


@given(seed=st.integers(0, 2**40), lr=st.floats(1e-9, 10))
def test_digest_depends_on_what_decides_the_result_and_on_nothing_else(seed, lr):
    base = {
        "seed": seed,
        "optim": {"lr": lr},
        "device": "cpu",
        "data": {
            "identified_by": "name",
            "root": "data",
            "workers": 0,
            "reader": {"root": "data", "images": 3},
        },
        "tracking": {"name": "none"},
    }
    here = OmegaConf.create(base)
    known = {"seed", "optim.lr", "data.reader.images", "data.identified_by"}
    assert set(identity(here)) == known
    elsewhere = OmegaConf.create(
        {
            **base,
            "device": "cuda",
            "max_minutes": 5,
            "data": {
                "identified_by": "name",
                "root": "/x",
                "workers": 8,
                "reader": {"root": "/x", "images": 3},
            },
            "tracking": {"name": "wandb", "key": 1},
        }
    )
    assert digest(here) == digest(elsewhere)
    assert digest(here) != digest(OmegaConf.create({**base, "seed": seed + 1}))
    assert digest(here) != digest(OmegaConf.create({**base, "optim": {"lr": lr * 1.5}}))


def test_ones_own_images_are_told_apart_by_their_place(composed, tmp_path, monkeypatch):
    here, there = (composed("data=folder", f"data.root=/{name}") for name in ("a", "b"))
    assert digest(here) != digest(there)
    monkeypatch.chdir(tmp_path)
    relative, absolute = (
        composed("data=folder", f"data.root={root}") for root in ("mine", tmp_path / "mine")
    )
    assert digest(relative) == digest(absolute)
    assert digest(composed("data=cub", "data.root=/a")) == digest(composed("data=cub"))


def test_weights_of_a_file_are_known_by_their_content(composed, tmp_path):
    file, copy = tmp_path / "a.pth", tmp_path / "b.pth"
    file.write_bytes(b"first")
    copy.write_bytes(b"first")
    before = digest(composed(f"backbone.weights={file}"))
    assert digest(composed(f"backbone.weights={copy}")) == before
    file.write_bytes(b"trained further")
    assert digest(composed(f"backbone.weights={file}")) != before


@pytest.mark.parametrize(
    ("protocol", "cache", "same"),
    [
        ("mlrc", 256, True),
        ("mlrc", "full", True),
        ("mlrc", 128, False),
        ("traditional", 256, False),
    ],
)
def test_a_cache_that_changes_no_pixel_makes_no_other_run(composed, protocol, cache, same):
    chosen = ("data=cub", f"protocol={protocol}")
    assert (digest(composed(*chosen, f"data.cache={cache}")) == digest(composed(*chosen))) is same


def test_an_option_without_effect_is_told(composed):
    def told(*overrides: str) -> list[str]:
        return [note for note in notes(check(composed(*overrides), Config)) if "no effect" in note]

    assert told("loss=ms", "data.images_per_class=4") == [
        "data.images_per_class=4 has no effect with data.sampler=random; "
        "data.sampler=balanced draws so many of each class"
    ]
    assert not told("protocol=mlrc", "loss=ms")


@pytest.mark.parametrize("scale", ["[1]", "[-1,1]", "[0.5,nan]", "[2,1]", "[0.1,0.2,0.3]"])
def test_ranges_of_crops_are_two_numbers(composed, scale):
    (problem,) = problems(composed(f"transform.scale={scale}"))
    assert problem.startswith("transform.scale: ")


def test_the_score_that_selects_must_exist(composed):
    (problem,) = problems(composed("protocol.select_metric=map_at_R"))
    assert problem.startswith("protocol.select_metric: no 'map_at_R'; one of map_at_r | ")
