"""`experiment=oml_vit`: OML's four trainings, its numbers and its images.

Each expected value is what OML has at revision 6be182e28ab01d237d64afb668b5b11ab94d3e25:
`docs/readme/examples_source/zoo/zoo_images.md` (scores) and
`pipelines/features_extraction/extractor_*/train_*.yaml` (settings).
"""

from __future__ import annotations

import pytest

from dml.config.check import check
from dml.config.compositions import compose_config
from dml.results.catalog import list_cells
from dml.results.published import find_results
from dml.runs.build import Builder

# Recall@1, (categories, classes, images of a class), margin (None: softplus), unit length,
# optimizer, evaluated every … epochs, precision
SETTINGS = {
    "sop": ("86.6", (3, 32, 6), 0.15, True, "Adam", 1, "bf16"),
    "inshop": ("92.1", (5, 30, 4), None, False, "AdamW", 1, "bf16"),
    "cub": ("83.7", (None, 8, 4), None, False, "Adam", 5, "fp32"),
    "cars": ("90.7", (None, 20, 10), None, False, "Adam", 10, "fp32"),
}
CLASSES = {"sop": 11318, "inshop": 3997, "cub": 100, "cars": 98}


@pytest.fixture(scope="module")
def cells():
    return {cell.options.data.name: cell for cell in list_cells("oml_vit")}


@pytest.fixture(params=SETTINGS)
def cell(request, cells):
    return cells[request.param]


def test_every_dataset_has_its_number(cells):
    found = {}
    for name, cell in cells.items():
        (key,) = cell.result_keys()
        (result,) = find_results(key, "recall_at_1", "oml", ["trained"])
        assert result.origin == "quoted"
        found[name] = result.text
    assert found == {name: values[0] for name, values in SETTINGS.items()}


def test_the_numbers_stand_beside_no_other_protocol_or_images(cell):
    (key,) = cell.result_keys()
    assert key.protocol == "oml"
    expected = {"sop": "sop", "inshop": "inshop_highres", "cub": "cub_boxes", "cars": "cars_boxes"}
    assert key.data == expected[cell.options.data.name]


def test_batches(cell):
    data = cell.options.data
    categories, classes, images = SETTINGS[data.name][1]
    groups = categories or 1
    assert data.batch_size == groups * classes * images
    assert data.images_per_class == images
    assert data.sampler == ("category" if categories else "balanced")
    if categories:
        assert data.categories_per_batch == categories
    steps = -(-CLASSES[data.name] // classes)  # each class once, as OML's samplers count
    assert cell.options.protocol.steps_per_epoch == steps


def test_losses_and_vectors(cell):
    _, _, margin, has_unit_length, *_ = SETTINGS[cell.options.data.name]
    config = check(compose_config(cell.overrides))
    method = Builder(config).method(5, 384)
    loss = method.loss
    assert (loss.margin, loss.smooth_loss) == (margin or 0, margin is None)
    assert type(loss.reducer).__name__ == "MeanReducer"
    assert loss.distance.normalize_embeddings == has_unit_length
    assert config.embedder["normalize"] == ("l2" if has_unit_length else "none")
    miner = getattr(method, "miner", None)
    is_hard = config.data.name in ("sop", "inshop")
    assert (type(miner).__name__ == "BatchHardMiner") == is_hard
    if is_hard:
        assert miner.distance.normalize_embeddings == has_unit_length
    if config.data.name == "cub":
        assert method.memory_batches == 50


def test_network_and_optimizer(cell):
    _, _, _, _, optimizer, every, precision = SETTINGS[cell.options.data.name]
    config = check(compose_config(cell.overrides))
    assert config.backbone["model"] == "vit_small_patch16_224.dino"
    assert (config.embedder["size"], config.embedder["head"]) == (None, "none")
    assert config.optim.target == f"torch.optim.{optimizer}"
    assert config.optim.lr == 1e-5
    assert config.optim.weight_decay == (0.01 if optimizer == "AdamW" else 0)  # torch's defaults
    assert config.optim.schedule is None
    assert (config.protocol.epochs, config.protocol.evaluate_every) == (10000, every)
    assert config.protocol.select_metric == "recall_at_1"
    assert config.protocol.selected_on == "test"
    assert config.precision == precision
