import unicodedata

import pytest
from omegaconf import OmegaConf

from dml.config.check import check
from dml.config.identity import digest
from dml.config.resolvers import class_name, folder_name


@pytest.mark.parametrize(
    ("backbone", "batch_size"), [("resnet50", 96), ("vit_s16", 128), (None, 128)]
)
def test_a_value_by_another_option(backbone, batch_size):
    cfg = OmegaConf.create(
        {"name": backbone, "batch": "${by:name,{resnet50:96},128}", "data": "sop"}
        | {"both": "${by:name+data,{resnet50_sop:10},${by:data,{sop:15},60}}"}
        | {"absent": "${by:method.name,{ccp:1},3}"}
    )
    assert (cfg.batch, cfg.both, cfg.absent) == (batch_size, 10 if batch_size == 96 else 15, 3)


def test_names_of_classes_and_folders(tmp_path, monkeypatch):
    targets = {"a.b.Net": "Net", "a.b:Net": "Net", "my_data.read_birds": "birds", "Net": "Net"}
    assert {target: class_name(target) for target in targets} == targets
    roots = {"/x/my_birds": "my_birds", "/x/birds/list.csv": "birds", "/": "folder"}
    roots |= {"/x/my birds": "my_birds-6df8ca", "/x/.b": "b-868dc7"}  # which stay over versions
    assert {root: folder_name(root) for root in roots} == roots
    monkeypatch.chdir(tmp_path)
    assert folder_name(".") == tmp_path.name


def test_own_classes_name_their_nodes(composed):
    own = ("method=custom", "method._target_=my_methods.Noisy", "data=custom")
    cfg = composed(*own, "data.reader._target_=my_data.read_birds", "loss=ms")
    assert (cfg.method.name, cfg.method.result_id, cfg.data.name) == ("Noisy", "ms+Noisy", "birds")


def test_the_record_of_a_network_becomes_its_options(composed):
    cfg = composed("backbone=timm", "backbone.model=convnext_tiny.fb_in22k_ft_in1k_384", "data=cub")
    config = check(cfg)
    record = {"input_size": 384, "mean": [0.485, 0.456, 0.406], "interpolation": "bicubic"}
    record |= {"crop_share": None}  # timm squeezes whole images
    assert config.backbone.items() >= record.items()
    assert (config.crop_size, config.embedder["pooling"]) == (384, "native")
    stored = OmegaConf.create(OmegaConf.to_yaml(cfg, resolve=True))  # needs no record
    assert digest(stored) == digest(cfg)


def test_names_of_folders_are_ascii_and_stay_different(tmp_path):
    names = [
        "产品",
        "图片",
        "größe",
        "grosse",
        "grüße",
        "Фото",
        "a b",
        "a#b",
        ".a_b",
        "-",
        "+",
        "a_b",
    ]
    made = [folder_name(str(tmp_path / name)) for name in names]
    assert all(name.isascii() for name in made)
    assert len(set(made)) == len(names)
    assert made[-1] == "a_b"  # which needs no change
    assert made[6].startswith("a_b-")
    apart = unicodedata.normalize("NFD", "größe")  # as macOS stores it
    assert folder_name(str(tmp_path / apart)) == made[2]


def test_a_link_to_itself_has_a_name(tmp_path):
    (tmp_path / "self").symlink_to("self")
    assert folder_name(str(tmp_path / "self")) == "self"
