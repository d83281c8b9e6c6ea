from pathlib import Path

import pytest
from omegaconf import OmegaConf

from dml.config.check import check
from dml.config.identity import ADDED, digest, flatten, identity, protocol_id


def test_the_digest_depends_on_what_decides_the_result_and_on_nothing_else(changed):
    here = digest(changed())
    elsewhere = "device=cuda max_minutes=5 data.workers=8 data.root=/x tracking.name=wandb name=a"
    assert digest(changed(*elsewhere.split())) == here
    decisive = "seed=1 optim.lr=2e-3 data.batch_size=64 loss.alpha=0.02 data.label_noise=0.1"
    for word in decisive.split():
        assert digest(changed(word)) != here


def test_keys_and_passwords_do_not_decide_the_result(composed):
    plain = flatten(OmegaConf.to_container(composed(), resolve=True))
    for value in ("secret", "", None, 123456):
        assert digest({**plain, "backbone.args.hub_token": value}) == digest(plain)
    for name, value in {"class_token": False, "num_token": 4}.items():
        assert digest({**plain, f"backbone.args.{name}": value}) != digest(plain)


def test_every_share_of_label_noise_is_a_protocol_of_its_own(composed):
    noisy = [composed(f"data.label_noise={share}") for share in (0.0, 0.1, 0.2)]
    assert len(set(map(protocol_id, noisy))) == 3
    assert protocol_id(noisy[0]) == composed().protocol.result_id


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


@pytest.mark.parametrize("name", ADDED)
def test_an_option_that_was_added_counts_where_it_differs_from_its_default(composed, name):
    cfg = composed()
    plain = flatten(OmegaConf.to_container(cfg, resolve=True))
    assert plain.get(name, ADDED[name]) == ADDED[name]
    without = {option: value for option, value in plain.items() if option != name}
    assert identity(without) == identity(plain)
    assert digest({**plain, name: "another value"}) != digest(plain)


def test_a_stored_config_without_added_options_has_their_defaults(composed):
    cfg = composed()
    OmegaConf.set_struct(cfg, False)
    for name in ADDED:
        node, _, key = name.rpartition(".")
        parent = OmegaConf.select(cfg, node) if node else cfg
        if parent is not None:  # backbone.lora of other networks
            parent.pop(key, None)
    config = flatten(check(cfg).model_dump(by_alias=True))
    typed = {name: value for name, value in ADDED.items() if not name.startswith("backbone.")}
    assert {name: config[name] for name in typed} == typed  # others: defaults of arguments
    assert digest(cfg) == digest(composed())


def test_names_are_left_out_whole_and_with_what_is_below_them():
    """`name` does not leave out `named`, nor `data.root` the option `data.root_of`."""
    decisive = ("named", "noted", "outputs_of", "data.root_of", "data.reader.cropped", "devices.a")
    left_out = (
        "name",
        "note",
        "tracking.name",
        "data.root",
        "data.reader.root",
        "search.storage.a",
    )
    options = dict.fromkeys((*decisive, *left_out), 1) | {"data.identified_by": "name"}
    assert set(identity(options)) == {*decisive, "data.identified_by"}
    assert len({digest({**options, name: 2}) for name in decisive}) == len(decisive)


@pytest.mark.parametrize(
    ("share", "end"), [(0.125, "12.5"), (0.07, "7"), (0.1, "10"), (0.005, "0.5")]
)
def test_a_protocol_names_its_share_of_label_noise_in_percent(composed, share, end):
    cfg = composed(f"data.label_noise={share}")
    assert protocol_id(cfg) == f"{composed().protocol.result_id}_noise{end}"


NAMES = Path(__file__).with_name("identity_names.txt")
KINDS = {
    "a run": (),
    "a search": ("search=bayes", "protocol=mlrc"),
    "own images": ("data=folder",),
}


def test_the_names_that_decide_a_result_are_those_of_the_list(composed):
    """A name that is lost would let two different runs share a folder."""
    found = []
    for kind, words in KINDS.items():
        found += [f"{kind}: {name}" for name in identity(composed(*words))]
    assert found == NAMES.read_text().splitlines()
