import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from dml.config.identity import digest, identity

# Digests of the commands at revision 82fc0ea: run folders of that time must still be found. Where a
# recipe was changed since, the options that restore the old one are given.
PLAIN_HEAD = "embedder.init=default embedder.bias=true embedder.freeze_batch_norm_affine=false"
DIGESTS = {
    "data=digits": "65985663",
    "data=digits loss=mfcont seed=3": "5ed12394",
    "data=cub loss=mfcwms": "7b534bc9",
    "data=cars protocol=mlrc loss=proxy_anchor search=bayes": "9cc5c5fc",
    "data=sop loss=pfml protocol=pfml backbone=resnet50": "44001a09",
    "data=inshop protocol=mlrc_ccp method=ccp loss=c2 optim.clip_loss_parameters=false "
    + PLAIN_HEAD: "2df4b471",
    "data=cub protocol=metrix backbone=resnet50 method=metrix loss=ms method.average=anchors "
    "embedder.init=default": "4a970759",
    "data=glyphs loss=contrastive method=xbm protocol=holdout method.exclude_self_pairs=false "
    "optim.clip_loss_parameters=false "
    "optim.clip_norm=null optim.clip_value=null data.reader.per_class=59 backbone.width=64 "
    + PLAIN_HEAD: "c6379bfc",
    "data=cars loss=soft_triple data.label_noise=0.2 protocol=pfml backbone=dino_s16": "683bde76",
    "data=cub protocol=metrix loss=proxy_anchor method=proxy_synthesis "
    "method.classes=pair": "0fb9410d",
    "data=cars protocol=pfml backbone=resnet50 loss=contrastive method=xbm "
    "method.exclude_self_pairs=false": "28f801fa",
}


@pytest.mark.parametrize(("command", "expected"), DIGESTS.items())
def test_digests_of_earlier_revisions(composed, command, expected):
    assert digest(composed(*command.split())) == expected


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


def test_metrix_with_the_former_average_keeps_its_digest(composed):
    words = ("method=metrix", "loss=contrastive", "backbone=resnet50", "data=cub")
    former = composed(*words, "method.average=anchors")
    assert not {"method.average", "method.anc_neg_anchors"} & set(identity(former))
    assert identity(composed(*words))["method.average"] == "terms"


def test_no_schedule_is_the_same_by_either_name(composed):
    none, null = composed("optim.schedule=none"), composed("optim.schedule=null")
    assert digest(none) == digest(null) != digest(composed("optim.schedule=cosine"))
    slower = composed("optim.schedule=step", "+optim.schedule_args.gamma=0.9")
    assert digest(slower) != digest(composed("optim.schedule=step"))
