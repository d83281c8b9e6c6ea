from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from dml.config.identity import digest, identity


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


def test_ones_own_images_are_told_apart_by_their_place(composed):
    here, there = (composed("data=folder", f"data.root=/{name}") for name in ("a", "b"))
    assert digest(here) != digest(there)
    assert digest(composed("data=cub", "data.root=/a")) == digest(composed("data=cub"))


def test_ranges_decide_a_search_only(composed):
    narrow = "+space.optim.lr={low: 1e-5, high: 1e-3}"
    assert digest(composed(narrow)) == digest(composed())
    search = ("search=bayes", "protocol=mlrc")
    assert digest(composed(*search, narrow)) != digest(composed(*search))


def test_a_stored_config_has_the_digest_of_its_command(composed):
    cfg = composed("data=cub", "protocol=mlrc", "loss=ms", "optim.lr=3e-5")
    assert digest(OmegaConf.create(OmegaConf.to_yaml(cfg, resolve=True))) == digest(cfg)
