"""`experiment=foundation`: losses on networks of today, each with the same protocol."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from dml.results.catalog import list_cells, load_experiment
from dml.results.plan import estimate_hours
from dml.results.pretraining import find_pretraining
from dml.results.report import build_report
from dml.results.section_tables import section_table
from tests.results.made_runs import write_run

LOSSES = {"proxy_anchor", "ms", "contrastive", "mfcwms", "mfcont", "pfml", "ms + metrix"}
FROZEN = {
    "vit_small_patch14_dinov2.lvd142m",
    "vit_small_patch16_dinov3.lvd1689m",
    "vit_base_patch16_siglip_224.v2_webli",
    "vit_base_patch16_clip_224.openai",
}


@pytest.fixture(scope="module")
def cells():
    """Those of CUB."""
    return [
        *list_cells("foundation", ["data.name=cub"]),
        *list_cells("foundation", ["backbone=timm", "data=cub"]),
    ]


def name_of(options):
    is_mixed = options.method.name == "metrix"
    return f"{options.loss.name} + metrix" if is_mixed else options.loss.name


def test_every_loss_has_every_protocol_on_every_network(cells):
    found = Counter()
    for cell in cells:
        options = cell.options
        network = options.backbone.name, options.backbone.get("train", "features")
        found[(*network, options.protocol.name, name_of(options))] += 1
    expected = {
        (network, "features", protocol, loss)
        for network in FROZEN
        for protocol in ("mlrc_features", "traditional")
        for loss in LOSSES
    }
    for protocol in ("mlrc", "traditional"):
        for loss in LOSSES:
            expected.add(("vit_small_patch14_dinov2.lvd142m", "lora", protocol, loss))
    assert set(found) == expected
    assert set(found.values()) == {1}


def test_searches_are_equal(cells):
    searches = {}
    for cell in cells:
        options = cell.options
        if options.search is not None:
            kind = options.protocol.name
            search = (options.search.trials, options.protocol.repeats, cell.trainings)
            searches.setdefault(kind, set()).add(search)
    assert searches == {"mlrc_features": {(50, 3, 212)}, "mlrc": {(50, 3, 212)}}
    rates = {str(c.options.space.optim.lr) for c in cells if c.options.protocol.name == "mlrc"}
    assert len(rates) == 1


def test_features_have_the_name_of_their_dataset_and_network(cells):
    for cell in cells:
        options = cell.options
        if options.data.reader["_target_"].endswith("read_features"):
            assert options.data.root == f"features/cub-{options.backbone.name}.npz"
            assert options.data.identified_by == "place"  # by its content


def test_the_plan_knows_the_hours(cells):
    assert all(estimate_hours(cell) for cell in cells)


def test_tables_say_what_the_networks_have_seen(cells, tmp_path):
    chosen = [cell for cell in cells if cell.options.protocol.name == "mlrc_features"]
    for cell in chosen[:3]:
        write_run(tmp_path, cell.options, [[0.5]], embedding_size=128)
    report = build_report(load_experiment("foundation"), chosen, tmp_path)
    titles = {c.title for s in report.sections for c in section_table(s, report).columns}
    assert "images seen" in titles
    for network in FROZEN:
        known = find_pretraining(network, "cub")
        assert known.holds == ("yes" if network.endswith("lvd142m") else "unknown")
        assert known.source


def test_the_report_of_a_part_shows_what_has_not_run(cells, tmp_path):
    """A section in which one row has a run and the others have none."""
    chosen = [cell for cell in cells if cell.options.protocol.name == "traditional"][:3]
    first = chosen[0].options
    write_run(tmp_path, first, [[0.5]], embedding_size=first.embedder.size)
    report = build_report(load_experiment("foundation"), chosen, tmp_path)
    (section,) = report.sections
    stored = [bool(row.stored) for row in section.rows]
    assert sorted(stored) == [False, False, True]
    assert len(section_table(section, report).columns[0].cells) == 3


@pytest.mark.parametrize("data", ["cub", "cars", "sop", "inshop"])
def test_a_pass_of_the_published_images(data):
    """The traditional protocol has one pass per epoch, also where a file has the features."""
    words = ["loss=ms", "method=plain", "protocol=traditional"]
    of_images = list_cells("foundation", ["backbone=timm", f"data={data}", *words])
    of_features = list_cells("foundation", [f"data.name={data}", *words])
    images = {"cub": 5864, "cars": 8054, "sop": 59551, "inshop": 25882}[data]
    for cell in (*of_images, *of_features):
        assert cell.options.protocol.steps_per_epoch == images // cell.options.data.batch_size
    assert np.unique([cell.options.optim.lr for cell in of_images]) == [3e-4]
