"""`experiment=off_the_shelf`: OML's networks, sizes, transforms and images, beside its numbers.

Each expected value is what OML has at revision 6be182e28ab01d237d64afb668b5b11ab94d3e25:
`docs/readme/examples_source/zoo/zoo_images.md` (scores), `oml/registry/transforms.py` (transforms),
`pipelines/datasets_converters/` and `pipelines/features_extraction/` (images).
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import timm
import torch

from dml.config.check import check
from dml.config.compositions import compose_config
from dml.models.backbones import TimmBackbone
from dml.results.catalog import list_cells, load_experiment
from dml.results.nearest import find_nearest
from dml.results.pretraining import find_pretraining
from dml.results.published import find_results, parse_setting, read_table
from dml.results.report import build_report
from dml.results.section_tables import section_table
from dml.runs.folder.stored_run import read_run
from tests.results.made_runs import write_run

# network: Recall@1 on SOP, In-Shop, CUB and Cars, and pixels of the shorter side ("squashed": the
# whole image to a square)
SQUASHED = None
NETWORKS = {
    "vit_small_patch16_224.dino": ("64.8", "50.9", "62.7", "26.5", SQUASHED),
    "vit_small_patch8_224.dino": ("65.1", "52.4", "66.1", "31.5", SQUASHED),
    "vit_base_patch16_224.dino": ("65.8", "51.4", "54.1", "28.8", SQUASHED),
    "vit_base_patch8_224.dino": ("68.9", "59.9", "50.6", "31.3", SQUASHED),
    "vit_small_patch14_dinov2.lvd142m": ("56.6", "33.4", "79.7", "50.3", 224),
    "vit_small_patch14_reg4_dinov2.lvd142m": ("56.6", "33.2", "79.5", "74.0", 224),
    "vit_base_patch14_dinov2.lvd142m": ("56.5", "34.2", "84.2", "64.4", 224),
    "vit_base_patch14_reg4_dinov2.lvd142m": ("55.7", "32.4", "83.3", "82.8", 224),
    "vit_large_patch14_dinov2.lvd142m": ("57.6", "35.2", "84.4", "69.2", 224),
    "vit_large_patch14_reg4_dinov2.lvd142m": ("57.1", "34.0", "84.0", "87.1", 224),
    "resnet50.tv_in1k": ("51.5", "28.4", "45.5", "24.7", 256),
}
# OML pads CLIP's images and scores the projection, which our rows do not: no difference is shown.
CLIP = {
    "vit_base_patch32_clip_quickgelu_224.openai": ("61.2", "49.1", "56.0", "69.3", 224),
    "vit_base_patch16_clip_quickgelu_224.openai": ("64.8", "60.6", "66.5", "76.7", 224),
    "vit_large_patch14_clip_quickgelu_224.openai": ("67.0", "67.5", "74.5", "84.4", 224),
}
DATASETS = ("sop", "inshop_highres", "cub_boxes", "cars_boxes")
WITHOUT_OURS = {
    "resnet50_moco_v2": ("49.3", "26.7", "26.4", "14.9"),
    "sber_vitb16_224": ("56.5", "56.5", "52.4", "64.8"),
    "sber_vitb32_224": ("54.7", "51.4", "44.8", "61.8"),
    "sber_vitl14_224": ("51.2", "55.5", "60.6", "70.7"),
    "vitb16_unicom": ("70.0", "73.4", "84.7", "91.6"),
    "vitb32_unicom": ("69.0", "72.2", "79.6", "89.3"),
    "vitl14_336px_unicom": ("74.5", "81.0", "87.5", "92.4"),
    "vitl14_unicom": ("72.6", "79.0", "86.8", "92.2"),
}
IMAGENET = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
OPENAI = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]


@pytest.fixture(scope="module")
def cells():
    return list_cells("off_the_shelf")


@pytest.fixture(scope="module")
def report(tmp_path_factory, cells):
    """The report before any run."""
    return build_report(load_experiment("off_the_shelf"), cells, tmp_path_factory.mktemp("runs"))


def test_the_cells_are_the_networks_of_oml_that_timm_has(cells):
    found = {
        (cell.options.backbone.model, key.data) for cell in cells for key in cell.result_keys()
    }
    assert len(cells) == len(found) == 4 * 14
    assert found == {(name, data) for name in NETWORKS | CLIP for data in DATASETS}


def test_every_cell_of_oml_has_its_number(cells):
    expected, found = {}, {}
    for name, values in NETWORKS.items():
        expected |= {(name, data): value for data, value in zip(DATASETS, values, strict=False)}
    for name in CLIP:
        expected |= {(name, data): None for data in DATASETS}
    for cell in cells:
        (key,) = cell.result_keys()
        results = find_results(key, "recall_at_1", "oml", ["zoo"])
        assert {one.origin for one in results} <= {"quoted"}
        found[key.backbone, key.data] = next((one.text for one in results), None)
    assert found == expected


def test_rows_of_oml_that_are_not_run_are_quoted_without_ours():
    expected = {}
    for name, values in (CLIP | WITHOUT_OURS).items():
        expected |= {(name, data): value for data, value in zip(DATASETS, values, strict=False)}
    found = {}
    for row in read_table("results.csv"):
        if row["source"] == "oml" and row["backbone"] not in NETWORKS:
            is_padded = row["setting"] == "features=projected;resize=padded"
            assert is_padded == (row["backbone"] in CLIP or row["backbone"].startswith("sber"))
            found[row["backbone"], row["dataset"]] = row["value"]
    assert found == expected


@pytest.mark.parametrize("name", NETWORKS | CLIP)
def test_sizes_transforms_and_features_are_oml_s(name, cells):
    for cell in cells:
        if cell.options.backbone.model != name:
            continue
        config = check(compose_config(cell.overrides))
        assert config.test_resize == (NETWORKS | CLIP)[name][4]
        backbone = cell.options.backbone
        assert (backbone.input_size, cell.options.transform.size or 224) == (224, 224)
        assert backbone.interpolation == ("bilinear" if name.endswith(".dino") else "bicubic")
        assert (backbone.mean, backbone.std) == (OPENAI if name in CLIP else IMAGENET)
        embedder = cell.options.embedder
        assert (embedder.size, embedder.head, embedder.normalize) == (None, "none", "none")
        assert embedder.pooling == "native"
        assert cell.trainings == 0


def test_images_are_those_of_oml(cells):
    images = {(c.options.data.name, c.options.data.crop, c.options.data.images) for c in cells}
    assert images == {
        ("cub", "boxes", None),
        ("cars", "boxes", None),
        ("sop", None, None),
        ("inshop", None, "highres"),
    }
    readers = {c.options.data.name: c.options.data.reader for c in cells}
    assert readers["cub"].crop == readers["cars"].crop == "boxes"
    assert readers["inshop"].resolution == "highres"


@pytest.mark.parametrize("registers", ["", "_reg4"])
def test_dinov2_takes_224_pixels(registers):
    """timm's record says 518; random weights, whose position embeddings have the size."""
    name = f"vit_small_patch14{registers}_dinov2.lvd142m"
    network = TimmBackbone(name, weights="none", input_size=224).eval()
    with torch.no_grad():
        features = network(torch.zeros(1, 3, 224, 224))
    assert features.shape == (1, 1 + 4 * bool(registers) + 16 * 16, 384)
    assert network.pool_natively(features).shape == (1, 384)


def test_a_table_has_a_row_per_network(report):
    titles = [section.title for section in report.sections]
    assert titles == [f"{data}, traditional" for data in ("cub_boxes", "cars_boxes", *DATASETS[:2])]
    for section in report.sections:
        table = section_table(section, report)
        columns = {column.title: column.cells for column in table.columns}
        names = [name.partition(" ")[0] for name in columns["network"]]
        assert sorted(names) == sorted([*NETWORKS, *CLIP, *WITHOUT_OURS])
        assert set(columns["images seen"]) <= {"yes", "no", "unknown"}
        assert section.baselines == []


@pytest.mark.parametrize("name", CLIP)
def test_clip_has_the_activation_that_its_weights_were_trained_with(name):
    with torch.device("meta"):
        network = timm.create_model(name.partition(".")[0], depth=1)
    assert type(network.blocks[0].mlp.act).__name__ == "QuickGELU"


@pytest.mark.parametrize("name", CLIP)
def test_clip_stands_beside_the_number_of_its_projection_without_a_difference(
    name, cells, tmp_path
):
    (cell,) = [c for c in cells if (c.options.backbone.model, c.options.data.name) == (name, "cub")]
    write_run(tmp_path, cell.options, [[0.5]], metric="recall_at_1", embedding_size=768)
    report = build_report(load_experiment("off_the_shelf"), cells, tmp_path)
    assert len(report.missing) == len(cells) - 1
    section = next(one for one in report.sections if one.title == "cub_boxes, traditional")
    table = section_table(section, report)
    (row,) = [row for row in table.rows if row[0].startswith(name)]
    values = dict(zip([column.title for column in table.columns], row, strict=True))
    assert values["published"] == CLIP[name][2]
    assert values["Δ"] == "✕"
    assert "not compared: the published result has features projected" in values["marks"].hint


DINO = "backbone.model=vit_small_patch16_224.dino"
OTHERS = {
    "of the experiment": ([DINO], "cub_boxes", "62.7", "+0.5"),
    "whole images": ([DINO, "data.crop=null"], "cub", "–", ""),
    "another transform": ([DINO, "backbone.crop_share=0.9"], "cub_boxes", "62.7", "✕"),
    "another network": (["backbone.model=convnext_tiny.fb_in22k"], "cub_boxes", "–", ""),
}


@pytest.mark.parametrize("words", OTHERS)
def test_a_number_stands_beside_runs_of_its_images_transform_and_network(words, cells, tmp_path):
    options, data, published, difference = OTHERS[words]
    cell = list_cells("off_the_shelf", ["data=cub", *options])[0]
    write_run(tmp_path, cell.options, [[0.632]], metric="recall_at_1", embedding_size=384)
    report = build_report(load_experiment("off_the_shelf"), cells, tmp_path)
    (section,) = [one for one in report.sections if one.title == f"{data}, traditional"]
    table = section_table(section, report)
    (row,) = [row for row in table.rows if "63.2" in " ".join(row)]
    titles = [column.title for column in table.columns]
    values = dict(zip(titles, row, strict=True))
    assert values["network"].startswith(cell.options.backbone.model)
    assert values.get("published", "–") == published
    assert values.get("Δ", "").startswith(difference)
    assert bool(difference) or not values.get("Δ")


def test_the_nearest_number_of_a_network_without_training_is_of_the_same_network(cells, tmp_path):
    found = {}
    for cell in cells:
        if cell.options.data.name == "sop":
            model = cell.options.backbone.model
            run = read_run(
                write_run(
                    tmp_path / model,
                    cell.options,
                    [[0.5]],
                    metric="recall_at_1",
                    embedding_size=384,
                )
            )
            found[model] = find_nearest(run)
    assert len(found) == 14
    for name, values in (NETWORKS | CLIP).items():
        assert found[name].startswith(f"Recall@1 {values[0]}")
    other = list_cells("off_the_shelf", ["data=sop", "backbone.model=convnext_tiny.fb_in22k"])[0]
    run = write_run(
        tmp_path / "other", other.options, [[0.5]], metric="recall_at_1", embedding_size=384
    )
    assert find_nearest(read_run(run)) is None


def test_numbers_of_other_images_are_not_found(cells):
    """Whole images, and small ones of In-Shop, have other ids: no row of OML, none of a paper."""
    for cell in cells:
        (key,) = cell.result_keys()
        if key.data != "sop":
            whole = replace(key, data=key.data.partition("_")[0])
            assert find_results(whole, "recall_at_1", "oml", ["zoo"]) == []


def test_what_is_known_of_pretraining_has_a_source():
    for row in read_table("results.csv"):
        if row["source"] == "oml":
            known = find_pretraining(row["backbone"], row["dataset"])
            assert known.holds in ("yes", "no", "unknown")
            assert known.images
            assert known.source
            is_warned = row["dataset"] == "cub_boxes" and known.images in (
                "ImageNet-1k",
                "LVD-142M",
            )
            assert (known.holds == "yes") == is_warned
    assert find_pretraining("small_cnn", "cub") is None
    assert parse_setting("features=projected;resize=padded")
