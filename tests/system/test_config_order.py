"""Precedence of configs: users rely on the order, so these tests fix it."""

import pytest
import yaml
from hydra import compose, initialize_config_dir

from dml.core.installation import CONFIGS

ORDER = ["loss", "protocol", "data", "recipe", "method", "experiment", "scale"]


@pytest.fixture
def groups(tmp_path):
    """A file in each group that sets `optim.lr` and `optim.weight_decay` to values of its own."""
    for rank, group in enumerate(ORDER):
        folder = tmp_path / group
        folder.mkdir()
        name = "probe_probe" if group == "recipe" else "probe"
        content = {"optim": {"lr": float(rank + 1), "weight_decay": rank + 100.0}}
        (folder / f"{name}.yaml").write_text("# @package _global_\n" + yaml.dump(content))
    return tmp_path


@pytest.mark.parametrize("last", ORDER)
def test_later_groups_win(composed, groups, last):
    for group in ORDER[ORDER.index(last) + 1 :]:  # which are chosen, and set their name only
        (groups / group / "probe.yaml").write_text(
            f"# @package _global_\n{group}: {{name: probe}}\n"
        )
        (groups / group / "probe_probe.yaml").unlink(missing_ok=True)
    chosen = [f"{group}=probe" for group in ("loss", "protocol", "data")]
    chosen += [f"{group}=probe" for group in ORDER[4 : ORDER.index(last) + 1]]
    assert composed(*chosen, searchpath=groups).optim.lr == 1 + ORDER.index(last)


def test_command_line_wins_over_all(composed, groups):
    chosen = [f"{group}=probe" for group in ORDER if group != "recipe"]
    cfg = composed(*chosen, "optim.lr=0.5", searchpath=groups)
    assert cfg.optim.lr == 0.5
    assert cfg.optim.weight_decay == 100.0 + ORDER.index("scale")


def test_data_chooses_a_backbone_that_the_command_line_overrides(composed, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "backbone").mkdir()
    (tmp_path / "data" / "probe.yaml").write_text(
        "# @package _global_\ndefaults:\n  - override /backbone: probe\ndata: {name: probe}\n"
    )
    (tmp_path / "backbone" / "probe.yaml").write_text("name: probe\n")
    assert composed("data=probe", searchpath=tmp_path).backbone.name == "probe"
    own = composed("data=probe", "backbone=small_cnn", searchpath=tmp_path)
    assert own.backbone.name == "small_cnn"


def test_the_embedded_default():
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        cfg = compose("train")
    names = [cfg[group].name for group in ("data", "backbone", "loss", "protocol", "method")]
    assert names == ["glyphs", "small_cnn", "mfcwms", "traditional", "plain"]


def test_scale_wins_over_the_experiment_and_the_command_line_over_scale(composed):
    experiment = "experiment=metrix_figure4"
    assert names_of(composed(experiment)) == ["cub", "resnet50", "contrastive", "metrix", "plain"]
    small = composed(experiment, "scale=standin")
    assert names_of(small)[:2] == ["glyphs", "small_cnn"]
    assert small.protocol.epochs == 3
    own = composed(experiment, "scale=standin", "data=digits", "protocol.epochs=2")
    assert names_of(own)[:2] == ["digits", "small_cnn"]
    assert own.protocol.epochs == 2


def names_of(cfg):
    return [cfg[group].name for group in ("data", "backbone", "loss", "protocol", "method")]
