"""Files of others run nothing: every place where a file can name a function × many functions.

The functions write a file, `canary`, or read one whose reading does. Hydra's own block list stops
none of them.
"""

from __future__ import annotations

import copy
import json
import os
import pickle
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

import dml
from dml.config.plain_yaml import read_plain_yaml
from dml.config.stored_network import parse_line
from dml.core.errors import ConfigError, UserError
from dml.runs.experiment import resume
from dml.runs.folder.run_folder import load_config, load_options
from tests.commands import embed, export, search

EVIL = """
import pathlib
pathlib.Path("canary").touch()

def write(*more, **options):
    pathlib.Path("canary").touch()

class Network:
    def __init__(self, *more, **options):
        write()
"""


class Bomb:
    """Writes the canary when it is unpickled."""

    def __reduce__(self):
        return os.system, ("touch canary",)


CALLS: dict[str, dict[str, Any]] = {
    "pandas": {"_target_": "pandas.read_pickle", "filepath_or_buffer": "bomb.pkl"},
    "torch.load": {"_target_": "torch.load", "f": "bomb.pt", "weights_only": False},
    "numpy": {"_target_": "numpy.load", "file": "bomb.pkl", "allow_pickle": True},
    "urlretrieve": {
        "_target_": "urllib.request.urlretrieve",
        "url": "file:///etc/hostname",
        "filename": "canary",
    },
    "copy": {"_target_": "shutil.copy", "src": "bomb.pkl", "dst": "canary"},
    "touch": {
        "_target_": "pathlib.Path.touch",
        "self": {"_target_": "pathlib.Path", "_args_": ["canary"]},
    },
    "logging": {"_target_": "logging.FileHandler", "filename": "canary"},
    "hub": {"_target_": "torch.hub.load", "repo_or_dir": "hub", "model": "net", "source": "local"},
    "extension": {"_target_": "torch.utils.cpp_extension.load", "name": "x", "sources": ["x.cpp"]},
    "save": {"_target_": "torch.save", "obj": 1, "f": "canary"},
    "hydra": {"_target_": "hydra.utils.get_method", "path": "my_evil.write"},
    "module": {"_target_": "my_evil.write"},
    "class": {"_target_": "my_evil.Network", "channels": 4},
    "colon": {"_target_": "my_evil:write"},
    "reexport": {"_target_": "dml.models.weights.Path.touch"},
    "function": {"_target_": "dml.models.weights.find_weights", "weights": "http://x.invalid/y"},
    "partial": {"_target_": "torch.optim.SGD", "_partial_": True},
    "environment": {"_target_": "dml.losses.C1Loss", "alpha": "${oc.env:HOME}"},
    "download": {"_target_": "dml.models.backbones.TimmBackbone", "model": "resnet18"},
}
# One of each reason for a refusal. All calls are tested where a config is read, at every place.
KINDS = ("touch", "module", "function", "partial", "environment", "download")


@pytest.fixture
def stranger(tmp_path, monkeypatch, own_modules):
    """The current folder, with files that write the canary; it must not be there at the end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    Path("my_evil.py").write_text(EVIL)
    Path("hub").mkdir()
    shutil.copy("my_evil.py", "hub/hubconf.py")
    Path("bomb.pkl").write_bytes(pickle.dumps(Bomb()))
    torch.save(Bomb(), "bomb.pt")
    Image.new("RGB", (8, 8)).save("photo.png")
    yield tmp_path
    assert not Path("canary").exists()
    assert "my_evil" not in sys.modules


@pytest.fixture
def run(run_tiny):
    _, folder = run_tiny("protocol.epochs=0")
    return folder


def flow(value: Any) -> str:
    """Formats plain values as they are typed on the command line."""
    if isinstance(value, dict):
        entries = [f"{key}:{flow(entry)}" for key, entry in value.items()]
        return "{" + ",".join(entries) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(flow, value)) + "]"
    return json.dumps(value)


def test_the_canary_sings(stranger):
    """Each call does what the tests below expect it not to do."""
    from hydra.utils import instantiate

    instantiate(CALLS["module"])
    assert Path("canary").exists()
    Path("canary").unlink()
    instantiate(CALLS["torch.load"])
    assert Path("canary").exists()
    Path("canary").unlink()
    instantiate(CALLS["touch"])
    assert Path("canary").exists()
    Path("canary").unlink()
    del sys.modules["my_evil"]


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Returns the places of all values in nested dictionaries and lists."""
    found = [path] if path else []
    entries = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in entries:
        if isinstance(value, dict | list):
            found += places(value, (*path, key))
        else:
            found.append((*path, key))
    return found


def plant(content: Any, place: tuple[Any, ...], call: Any) -> Any:
    """Returns a copy of nested values in which a call stands at a place, or in a list there."""
    planted = copy.deepcopy(content)
    node = planted
    for key in place[:-1]:
        node = node[key]
    before = node[place[-1]]
    node[place[-1]] = [*before, call] if isinstance(before, list) else call
    return planted


def test_a_run_folder_with_a_call_at_any_place(run, stranger):
    content = read_plain_yaml(run / "config.yaml")
    calls = [*CALLS.values()]
    everywhere = places(content)
    assert len(everywhere) > 100
    for number, place in enumerate(everywhere):
        call = calls[number % len(calls)]
        (run / "config.yaml").write_text(yaml.safe_dump(plant(content, place, call)))
        if call is CALLS["download"] and place[0] == "space":  # nothing is searched
            continue
        with pytest.raises(ConfigError) as refusal:
            load_config(run)
        if call is not CALLS["download"]:  # as a name it is no text
            assert len(refusal.value.problems) == 1, place
            assert "config.yaml" in str(refusal.value), place


@pytest.mark.parametrize("call", KINDS)
def test_an_export_or_a_run_is_refused_at_every_door(run, stranger, capfd, command_line, call):
    exported = dml.export(run, stranger / "net")
    for folder in (run, exported):
        content = read_plain_yaml(folder / "config.yaml")
        content["backbone"] |= CALLS[call]
        (folder / "config.yaml").write_text(yaml.safe_dump(content))
        if call == "download":  # as the backbone itself: the weights of the folder are loaded
            continue
        for use in (dml.load, load_options, resume, lambda path: dml.embed(path, "photo.png")):
            with pytest.raises(UserError, match=r"config\.yaml"):
                use(folder)
        assert embed([str(folder), "photo.png", "x.npz"]) != 0
        assert export([str(folder), "again"]) != 0
        assert command_line(f"resume={folder}")[0] != 0
    assert not Path("x.npz").exists()


@pytest.mark.parametrize("call", KINDS)
def test_best_yaml(run, stranger, call):
    content = read_plain_yaml(run / "config.yaml")
    searched = {"name": "bayes", "trials": 1, "startup": 1, "sampler": "tpe"}
    content["search"] = searched | {"try_defaults": True, "pruning": False, "storage": None}
    (run / "config.yaml").write_text(yaml.safe_dump(content))
    node = CALLS[call]
    for values in ({"loss": node}, {"optim.args": {"a": [node]}}, {"loss.miner": node}):
        (run / "best.yaml").write_text(yaml.safe_dump(values))
        with pytest.raises(ConfigError, match=r"best\.yaml"):
            load_config(run)
    for name in ("loss._target_", "loss[_target_]", "loss.miner._target_", "data.reader._target_"):
        if call not in ("download", "partial", "environment"):
            (run / "best.yaml").write_text(yaml.safe_dump({name: node["_target_"]}))
            with pytest.raises(ConfigError, match=r"best\.yaml"):
                load_config(run)


FORBIDDEN = {
    "overwrite": True,
    "outputs": "elsewhere",
    "resume": "x",
    "data.root": "/",
    "data.reader.root": "/",
    "data.reader": {"root": "/"},
    "tracking.mode": "online",
    "tracking.settings": {"base_url": "https://x.invalid"},
    "search.storage": "sqlite:///x.db",
    "hydra.run.dir": "/",
    "hydra/launcher": "slurm",
    "experiment.id": "x",
    "device": "cpu",
    "trust": True,
    "loss[name]": "x",
    "code.my_evil": "x",
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_a_file_of_values_sets_what_makes_a_model_only(stranger, command_line, name):
    Path("values.yaml").write_text(yaml.safe_dump({name: FORBIDDEN[name], "loss.alpha": 1}))
    status, _, err = command_line("params=values.yaml", "data=digits")
    assert status == 2
    assert "values.yaml" in err
    assert name in err
    assert len(err.splitlines()) == 1
    assert not Path("outputs").exists()
    assert command_line("params=values.yaml", "data=digits", "trust=true")[0] == 2


@pytest.mark.parametrize("call", KINDS)
def test_a_params_file(stranger, command_line, call):
    for words in ([], ["-m", "seed=0,1"]) if call == "module" else ([],):
        for values in (
            {"loss": CALLS[call]},
            {"loss.miner": CALLS[call]},
            {"mfcwms": {"default": {"loss.a": [CALLS[call]]}}},
            {"mfcwms": {"digits": {"backbone": CALLS[call]}}},
        ):
            if call == "download" and "backbone" in str(values).partition("_target_")[0]:
                continue
            Path("values.yaml").write_text(yaml.safe_dump(values))
            status, _, err = command_line("params=values.yaml", "data=digits", *words)
            assert status == 2, values
            assert "values.yaml" in err
    assert not list(Path("outputs").glob("single/*/*/config.yaml"))


INJECTIONS = [
    {"loss.miner": {"a:1,_target_:my_evil.write,b": 1}},
    {"loss.a": {"x": '",_target_:my_evil.write,y:"'}},
    {"loss.a": "\\\", b: 1"},
    {"loss.a": ["x\n_target_: my_evil.write"]},
]  # fmt: skip


@pytest.mark.parametrize("values", INJECTIONS)
def test_a_text_does_not_become_another_entry(stranger, command_line, values):
    Path("values.yaml").write_text(yaml.safe_dump(values))
    status, _, err = command_line("params=values.yaml", "data=digits")
    assert status == 2
    assert "values.yaml" in err


BOMBS = {
    "aliases": "a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(f"{b}: &{b} [{','.join(['*' + a] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi")),  # noqa: B905
    "levels": "a: " + "[" * 5000 + "]" * 5000,
    "python": "a: !!python/object/apply:os.system ['touch canary']",
    "path": "a: !!python/object/apply:pathlib.PosixPath ['x']",
    "set": "loss.a: !!set {x}",
    "bytes": "loss.a: !!binary aGVsbG8=",
    "list": "[1, 2]",
    "large": "a: 1\n" * 1_000_001,
    "environment": "loss.a: ${oc.env:HOME}",
    "not text": "loss.a: \x00",
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_of_yaml(run, stranger, command_line, name):
    Path("values.yaml").write_text(BOMBS[name])
    status, _, err = command_line("params=values.yaml", "data=digits")
    assert status == 2
    assert "values.yaml cannot be read" in err
    assert len(err.splitlines()) == 1
    (run / "config.yaml").write_text(BOMBS[name])
    with pytest.raises(ConfigError, match=r"config\.yaml cannot be read"):
        dml.load(run)


def test_a_named_pipe_is_no_config(run, stranger):
    (run / "config.yaml").unlink()
    os.mkfifo(run / "config.yaml")
    with pytest.raises(ConfigError, match=r"config\.yaml cannot be read: it is no file"):
        dml.load(run)


def write_file(path: str, made_by: Any) -> str:
    """Writes embeddings of 12 images of three classes, and what is said to have made them."""
    rng = np.random.default_rng(0)
    arrays = {"embeddings": rng.normal(size=(12, 8)).astype(np.float32)}
    arrays["labels"] = np.repeat(["a", "b", "c", "d"], 3)
    arrays["paths"] = np.array([f"{row}.png" for row in range(12)])
    if path.endswith(".npz"):
        np.savez(path, **arrays, made_by=made_by)
        return path
    import pyarrow
    from pyarrow import parquet

    columns = {name: pyarrow.array(array) for name, array in arrays.items() if array.ndim == 1}
    rows = pyarrow.array(arrays["embeddings"].ravel())
    columns["embeddings"] = pyarrow.FixedSizeListArray.from_arrays(rows, 8)
    text = {"made_by": str(made_by)}
    parquet.write_table(pyarrow.table(columns, metadata=text), path)
    return path


def made_by(**changes: Any) -> str:
    content = {"network": "timm:test_resnet", "repeat": None, "fold": None, "features": True}
    content |= {"options": ["data=folder", "backbone.weights=none"], "weights": "0" * 16}
    return json.dumps(content | changes)


def hostile() -> dict[str, dict[str, Any]]:
    """Contents of `made_by`: each call in one of the sinks, and networks that would be fetched."""
    found: dict[str, dict[str, Any]] = {}
    sinks = ("backbone.mean", "+backbone.x", "embedder", "loss", "backbone._target_")
    for number, (name, call) in enumerate(CALLS.items()):
        sink = sinks[number % len(sinks)]
        value = call["_target_"] if sink.endswith("_target_") else flow(call)
        found[f"{sink} {name}"] = {"options": [f"{sink}={value}"]}
    words = ["backbone=custom", "backbone.model=hf-hub:a/b", "backbone.weights=http://x.invalid/y"]
    words += ["backbone.weights=hf:a/b", "backbone.mean=${oc.env:HOME}", "hydra.run.dir=/"]
    words += ["--config-dir=.", "+tracking.settings={base_url:x}", "data.background=[{_target_:x}]"]
    words += ["data=../my_evil", "~backbone", "backbone.mean=[1,2,${oc.env:HOME}]", "outputs=x"]
    found |= {word: {"options": [word]} for word in words}
    networks: list[Any] = ["hf:a/b", "hf-hub:a/b", "timm:hf-hub:a/b", "timm:local-dir:hub", "-x"]
    networks += ["timm:../x", "https://x.invalid/net", "", None, ["timm:test_resnet"], 3]
    networks += ["timm:test_resnet' backbone.x='1", "timm:test_resnet backbone=custom", "net\x00"]
    networks += ["s3://a/b", "timm:${oc.env:HOME}", "${oc.env:HOME}", "timm:nope", "absent"]
    found |= {f"network {network!r}": {"network": network} for network in networks}
    found |= {"options text": {"options": "backbone=custom"}, "repeat": {"repeat": "x"}}
    return found


HOSTILE = hostile()
FOUND_LATER = ("network 'timm:nope'", "network 'absent'", "repeat")  # when the network is opened
NO_TEXTS = ("network None", "network 3")  # in a line they are names of folders
LINES = [name for name in HOSTILE if name not in FOUND_LATER + NO_TEXTS]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_of_embeddings(stranger, monkeypatch, name):
    refuse_photo(monkeypatch, name, ".npz")


def refuse_photo(monkeypatch, name: str, suffix: str) -> None:
    """Checks that a photo is not searched for, and rows are."""
    monkeypatch.setattr("dml.models.backbones.load_network", lambda *more: pytest.fail("made"))
    file = write_file(f"file{suffix}", made_by(**HOSTILE[name]))
    with pytest.raises(UserError) as refusal:
        dml.search(file, ["photo.png"], k=1)
    assert len(str(refusal.value).splitlines()) == 1
    assert search([file, "photo.png", "-k", "1"]) != 0
    assert len(dml.search(file, [0], k=2, picture=None)) == 2  # by row it needs no network


def test_a_parquet_file(stranger, monkeypatch):
    pytest.importorskip("pyarrow")
    for name in ("backbone.mean pandas", "backbone=custom", "network 'timm:hf-hub:a/b'"):
        refuse_photo(monkeypatch, name, ".parquet")


@pytest.mark.parametrize("call", ["module", "download"])
def test_a_network_beside_the_file(run, stranger, call):
    exported = dml.export(run, stranger / "net")
    content = read_plain_yaml(exported / "config.yaml")
    content["method"]["a"] = CALLS[call]
    (exported / "config.yaml").write_text(yaml.safe_dump(content))
    file = write_file("file.npz", made_by(network="net", options=["data=folder"]))
    with pytest.raises(UserError, match=r"net/config\.yaml"):
        dml.search(file, ["photo.png"], k=1)


@pytest.mark.parametrize("name", HOSTILE)
def test_features_that_a_head_is_trained_on(stranger, composed, name):
    """The run keeps no network that it could not use; one that is written in later is refused."""
    file = write_file("file.npz", made_by(**HOSTILE[name]))
    network = composed("data=features", f"data.root={stranger}/{file}").backbone.network
    assert network is None or name in FOUND_LATER


def line_of(name: str) -> str:
    """Returns the network and its options in one line, as the config of a head holds them."""
    words = {"network": "timm:test_resnet", "options": []} | HOSTILE[name]
    return " ".join([str(words["network"]), *words["options"]])


@pytest.mark.parametrize("name", LINES)
def test_a_line_that_names_a_network(name):
    with pytest.raises(UserError):
        parse_line(line_of(name), "config.yaml")


@pytest.mark.parametrize(
    "name",
    [
        *("backbone.mean pandas", "backbone._target_ copy", "backbone=custom", "outputs=x"),
        *("network 'timm:hf-hub:a/b'", "network ''", "network 'absent'"),
        *("network 'timm:nope'", "network \"timm:test_resnet' backbone.x='1\""),
    ],
)
def test_a_head_names_a_network(stranger, head, name):
    content = read_plain_yaml(head / "config.yaml")
    content["backbone"]["network"] = line_of(name)
    (head / "config.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(UserError):
        dml.load(head)
    with pytest.raises(UserError):
        dml.embed(head, "photo.png")


@pytest.fixture(scope="module")
def trained_head(tmp_path_factory):
    from tests.conftest import compose_config, run_config, without_pictures

    folder = tmp_path_factory.mktemp("head")
    file = write_file(str(folder / "file.npz"), made_by())
    words = [f"data.root={file}", "data=features", "device=cpu", "embedder.size=4"]
    batch = ["data.batch_size=2", "data.sampler=random", "protocol.epochs=0", "loss=ms"]
    with without_pictures():
        return run_config(compose_config(f"outputs={folder}/outputs", *words, *batch))[1]


@pytest.fixture
def head(trained_head, stranger):
    shutil.copytree(trained_head, stranger / "head")
    return stranger / "head"


def test_a_head_that_stands_on_itself(head):
    content = read_plain_yaml(head / "config.yaml")
    content["backbone"]["network"] = "head"
    (head / "config.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(UserError, match="or on itself"):
        dml.load(head)


NOT_READ = {
    "text": "{",
    "number": "3",
    "list": "[1]",
    "null": "null",
    "array": np.arange(3),
    "bytes": b"\xff\xfe",
    "empty": "",
    "deep": "[" * 100_000,
    "objects": np.array([{"a": 1}], dtype=object),
    "background": json.dumps({"network": 1, "background": {"_target_": "x"}}),
}


@pytest.mark.parametrize("name", NOT_READ)
def test_rows_need_nothing_of_made_by(stranger, name, monkeypatch):
    file = write_file("file.npz", NOT_READ[name])
    assert len(dml.search(file, [0, 1], k=3)) == 6
    from dml.runs.evaluation.evaluate import evaluate
    from dml.runs.load import compose_network

    found = evaluate(compose_network([f"embeddings={file}", "device=cpu"]))
    assert 0 <= found["metrics"]["map_at_r"] <= 1
    with pytest.raises(UserError, match="network"):
        dml.search(file, ["photo.png"], k=1)


@pytest.mark.parametrize("name", ["embeddings", "views", "labels", "splits", "paths"])
def test_arrays_of_objects_are_not_mapped(stranger, name):
    """A number of the file would be used as an address of this process."""
    arrays = {"embeddings": np.zeros((4, 2), "f4"), "labels": np.array([*"aabb"])}
    arrays["views"] = np.zeros((4, 1, 2), "f4")
    like = arrays.get(name, arrays["labels"])
    arrays[name] = np.zeros(like.shape, dtype=[("a", "O")])
    np.savez("file.npz", **arrays)
    with pytest.raises(UserError, match="objects"):
        dml.search("file.npz", [0], k=1)


def test_a_stored_search_sets_what_it_searches(stranger):
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    from dml.runs.search.proposals import check_params

    space = {"optim.lr": FloatDistribution(0, 1), "loss.a": CategoricalDistribution(["x", None])}
    check_params({"optim.lr": 0.5, "loss.a": None}, space, "journal.log")
    for params in ({"backbone.mean": CALLS["module"]}, {"loss.a": CALLS["module"]}, {"seed": 1}):
        with pytest.raises(UserError, match=r"journal\.log"):
            check_params(params, space, "journal.log")


OWN = """
import numpy as np
import torch
from torch import nn

from dml.data.image_index import ImageIndex
from dml.methods.plain import Plain
from dml.tracking import Tracker


class Loss(nn.Module):
    def forward(self, embeddings, labels):
        return embeddings.square().mean()


class Method(Plain):
    pass


class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.layer = nn.Conv2d(3, width, 3)

    def forward(self, images):
        return self.layer(images)


def net(width):
    return Net(width)


class Schedule(torch.optim.lr_scheduler.StepLR):
    pass


class Silent(Tracker):
    pass


def read_noise():
    labels = np.repeat(np.arange(6), 8)
    images = np.random.default_rng(0).integers(0, 255, (48, 8, 8, 3), np.uint8)
    return ImageIndex("noise", images, labels, np.where(labels < 3, "train", "test"))
"""
OWN_WORDS = {
    "loss": ["loss=custom", "loss._target_=my_own.Loss"],
    "method": ["method=custom", "method._target_=my_own.Method"],
    "network": ["backbone=custom", "backbone._target_=my_own.Net", "transform.size=8"],
    "factory": ["backbone=custom", "backbone._target_=my_own.net", "+backbone.width=5"],
    "reader": [
        *("data=custom", "data.reader._target_=my_own.read_noise", "backbone=small_cnn"),
        *("transform.size=8", "transform.test_resize=8", "data.batch_size=4"),
        *("data.sampler=random", "data.images_per_class=null", "protocol=traditional"),
    ],
    "tracker": ["tracking._target_=my_own.Silent"],
    "schedule": ["optim.schedule={_target_:my_own.Schedule,step_size:1}"],
}
PML = "pytorch_metric_learning"
OPEN_WORDS = {
    "PML": ["loss=custom", f"loss._target_={PML}.losses.CircleLoss", "+loss.gamma=80"],
    "MultipleLosses": [
        *("loss=custom", f"loss._target_={PML}.losses.MultipleLosses"),
        f"+loss.losses=[{{_target_:{PML}.losses.CircleLoss}},{{_target_:{PML}.losses.NTXentLoss}}]",
    ],
    "parts": [
        "loss=contrastive",
        f"+loss.distance={{_target_:{PML}.distances.LpDistance}}",
        f"+loss.reducer={{_target_:{PML}.reducers.MeanReducer}}",
        f"+loss.miner={{_target_:{PML}.miners.PairMarginMiner}}",
    ],
    "NAdam": ["optim._target_=torch.optim.NAdam", "optim.args={}"],
    "OneCycle": [
        "~optim.schedule",
        "+optim.schedule={_target_:torch.optim.lr_scheduler.OneCycleLR,max_lr:1,total_steps:9}",
    ],
    "cosine": ["optim.schedule=cosine"],
}


def train_words(composed, words):
    from tests.conftest import TINY, run_config

    given = {word.partition("=")[0] for word in words} | {"backbone.width"}
    tiny = [word for word in TINY if word.partition("=")[0] not in given]
    small = [] if "backbone=custom" in words else ["backbone.width=4"]
    if not any(word.startswith("data=") for word in words):
        tiny.append("data=digits")
    words = [*tiny, *words, "protocol.epochs=0", "optim.lr=0.1", *small]
    return run_config(composed(*dict.fromkeys(words)))[1]


@pytest.mark.parametrize("form", OWN_WORDS)
def test_own_code_that_is_typed_needs_no_word_and_to_be_loaded_trust(stranger, composed, form):
    Path("my_own.py").write_text(OWN)
    folder = train_words(composed, OWN_WORDS[form])
    for use in (dml.load, dml.load_all, resume, lambda path: dml.export(path, "net")):
        with pytest.raises(ConfigError, match=r"_target_: my_own.*my_own\.py.*trust"):
            use(folder)
    assert not Path("net").exists()
    dml.load(folder, trust=True)
    assert len(dml.load_all(folder, trust=True)) == 1
    resume(folder, trust=True)
    dml.export(folder, "net", trust=True)
    with pytest.raises(ConfigError, match="trust"):
        dml.load("net")
    dml.load("net", trust=True)
    made = dml.embed("net", "photo.png", "made.npz", trust=True)
    Image.new("RGB", (8, 8), "red").save("other.png")
    if form in ("network", "factory"):
        assert made.embeddings.shape == (1, 8)
    file = write_file("file.npz", json.dumps(made.made_by))
    with pytest.raises(ConfigError, match="trust"):
        dml.search(file, ["other.png"], k=1)
    assert len(dml.search(file, ["other.png"], k=1, trust=True)) == 1


@pytest.mark.parametrize("form", OPEN_WORDS)
def test_parts_of_libraries_are_loaded_without_a_word(stranger, composed, form):
    folder = train_words(composed, OPEN_WORDS[form])
    dml.load(folder)
    resume(folder)
    dml.load(dml.export(folder, "net"))


def test_a_network_of_the_hub_is_opened_with_trust_only(run, stranger):
    content = read_plain_yaml(run / "config.yaml")
    for model in ("hf-hub:a/b", "HF_HUB:a/b", "local-dir:hub"):
        content["backbone"] |= {"_target_": "dml.models.backbones.TimmBackbone", "model": model}
        (run / "config.yaml").write_text(yaml.safe_dump(content))
        with pytest.raises(ConfigError, match=r"would be fetched from elsewhere.*trust=true"):
            load_config(run)
        load_config(run, trust=True)


def test_a_run_does_not_download_what_its_folder_holds(run, stranger, monkeypatch):
    """Also where a stranger has taken `weights` out, so that the class's own default holds."""
    content = read_plain_yaml(run / "config.yaml")
    content["backbone"] = {"name": "x", "_target_": "dml.models.backbones.TimmBackbone"}
    content["backbone"]["model"] = "test_resnet"
    (run / "config.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(UserError, match="damaged or of another network"):
        dml.load(run)


def test_trust_is_for_files_that_are_named(stranger, command_line):
    status, _, err = command_line("data=digits", "trust=true")
    assert (status, err.startswith("error: trust: has no effect here")) == (2, True)
    status, _, err = command_line("data=digits", "params=mft", "trust=perhaps")
    assert "must be true or false" in err


def test_a_command_with_trust_is_stored_whole(stranger, command_line):
    Path("my_own.py").write_text(OWN)
    Path("values.yaml").write_text("method._target_: my_own.Method\noptim.lr: 1e-5\n")
    words = ["data=digits", "protocol.epochs=0", "backbone.width=4", "params=values.yaml"]
    status, _, err = command_line(*words)
    assert status == 2
    assert "values.yaml: method._target_: my_own.Method" in err
    assert command_line(*words, "trust=true")[0] == 0
    (folder,) = Path("outputs/single").glob("*/*")
    assert "trust=true" in (folder / "command.txt").read_text()
    content = read_plain_yaml(folder / "config.yaml")
    assert content["optim"]["lr"] == 1e-5
    assert "trust" not in content
    assert dml.train([*words, "trust=true"])["folder"] == str(folder)


def test_a_pickle_of_hydra_is_not_read(stranger, command_line):
    status, _, err = command_line("--experimental-rerun=bomb.pkl")
    assert (status, "it reads a pickle" in err) == (2, True)
    assert command_line("--experimental-rerun", "bomb.pkl")[0] == 2
