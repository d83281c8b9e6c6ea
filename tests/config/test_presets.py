import os

import pytest
from hydra.core.hydra_config import HydraConfig

from dml.config.check import check
from dml.config.presets import apply_params, extract_params, load_preset
from dml.core.errors import ConfigError
from dml.training.schedules import named_schedule


def test_values_of_a_table_precede_the_users_overrides():
    words = ["protocol=mlrc", "loss=contrastive", "data=cub", "params=mlrc", "loss.neg_margin=1"]
    found, left = extract_params(words, "train")
    assert left is None
    assert found[:2] == ["loss.pos_margin=-0.2", "loss.neg_margin=0.3841"]
    assert found[2:] == [word for word in words if word != "params=mlrc"]


def test_a_multirun_takes_the_values_of_each_job(composed):
    words = ["-m", "params=mlrc", "loss=contrastive,ms", "data=cub"]
    assert extract_params(words, "train") == (["-m", "loss=contrastive,ms", "data=cub"], "mlrc")
    cfg = apply_params(composed("loss=ms", "data=cars"), "mlrc", ["loss=ms", "loss.base=0.1"])
    assert (cfg.loss.alpha, cfg.loss.beta) == (14.35, 75.83)
    assert cfg.loss.base != 0.66


def test_values_reach_the_config(command_line):
    assert not HydraConfig.initialized()
    status, out, _ = command_line("params=mlrc", "loss=arcface", "data=cub", "loss.scale=7",
                                  "--cfg", "job")  # fmt: skip
    assert status == 0
    assert "margin: 23.22" in out
    assert "scale: 7" in out


@pytest.mark.parametrize(
    ("params", "loss", "data", "message"),
    [
        ("mlrcc", "ms", "cub", "neither a file nor one of ccp, .*mlrc"),
        ("mlrc", "mfcwms", "cub", "no values for loss 'mfcwms'"),
        ("mlrc", "ms", "glyphs", "ms on 'glyphs', only on cub, cars, sop"),
    ],
)
def test_missing_file_or_row(params, loss, data, message):
    with pytest.raises(ConfigError, match=message):
        load_preset(params, loss, data)


def test_a_file_of_somebody_else_does_not_read_the_environment(tmp_path):
    (tmp_path / "best.yaml").write_text("optim.lr: '${oc.env:HOME}'")
    with pytest.raises(ConfigError, match=r"best\.yaml cannot be read: .* holds \$\{"):
        extract_params([f"params={tmp_path / 'best.yaml'}"], "train")


def test_values_of_another_loss_are_refused(tmp_path):
    (tmp_path / "best.yaml").write_text("loss.scale: 3\n")
    with pytest.raises(ConfigError, match=r"params: .* sets loss\.scale.* choose the loss"):
        extract_params([f"params={tmp_path / 'best.yaml'}", "loss=contrastive"], "train")


def test_a_run_folder_has_a_file_of_values(tmp_path):
    with pytest.raises(ConfigError, match=r"is no file$"):
        load_preset(str(tmp_path), "ms", "cub")
    (tmp_path / "best.yaml").touch()
    with pytest.raises(ConfigError, match=r"is no file; write params=.*best\.yaml"):
        load_preset(str(tmp_path), "ms", "cub")


def test_the_row_of_a_dataset_takes_precedence_over_the_default():
    assert load_preset("pfml", "pfml", "cub") == {"loss.proxies_per_class": 15}
    assert load_preset("pfml", "pfml", "sop") == {"loss.proxies_per_class": 2}
    cars = load_preset("ccp", "soft_triple", "cars")
    assert (cars["loss.la"], cars["loss.centers_per_class"]) == (17.69, 10)


def test_an_experiment_chooses_a_table_and_params_another(composed):
    chosen = ("experiment=metrix_text", "loss=ms", "data=cub")
    assert apply_params(composed(*chosen), None, chosen).loss.beta == 75
    assert apply_params(composed(*chosen), "mlrc", chosen).loss.beta == 50.6


def test_with_an_experiment_the_values_are_left_to_each_run():
    words = ["experiment=pfml_table7", "params=mlrc"]
    assert extract_params(words, "train") == (["experiment=pfml_table7"], "mlrc")


def test_values_may_come_from_a_pipe_of_the_shell():
    """`params=<(…)`: it is read once, although a command looks at its values several times."""
    reading, writing = os.pipe()
    os.write(writing, b"optim.lr: 0.25\n")
    os.close(writing)
    try:
        words = [f"params=/dev/fd/{reading}", "data=digits", "loss=contrastive"]
        found, left = extract_params(words, "train")
    finally:
        os.close(reading)
    assert left is None
    assert found[0] == "optim.lr=0.25"


@pytest.mark.parametrize(
    ("loss", "data", "sampler", "batch", "epochs", "rates", "milestones"),
    [
        ("fastap", "sop", ("category", 2, 4), 256, 30, (1e-5, 1e-4), None),
        ("smooth_ap", "inat", ("balanced", None, 4), 112, 90, (1e-5, 5e-5), [40, 70]),
        ("recall_at_k", "sop", ("balanced", None, 4), 4000, 55, (2e-4, None), [25, 50]),
        ("recall_at_k", "inat", ("balanced", None, 4), 4000, 90, (1e-4, None), [40, 70]),
    ],
)
def test_settings_of_losses_that_rank_a_batch(
    composed, loss, data, sampler, batch, epochs, rates, milestones
):
    """As read in the authors' code; the schedule has no argument of another one."""
    words = ["protocol=pfml", f"loss={loss}", f"data={data}", "backbone=resnet50", "optim=adam"]
    config = check(apply_params(composed(*words), "ranking", words))
    chosen = config.data.sampler, config.data.categories_per_batch, config.data.images_per_class
    assert (chosen, config.data.batch_size, config.protocol.epochs) == (sampler, batch, epochs)
    assert (config.optim.lr, config.optim.groups.get("head", {}).get("lr")) == rates
    if milestones is None:
        assert config.optim.schedule is None
    else:
        schedule = named_schedule(config.optim.schedule, epochs, {})
        assert schedule.pop("_target_") == "torch.optim.lr_scheduler.MultiStepLR"
        assert schedule == {"milestones": milestones, "gamma": 0.3}


def test_smooth_ap_has_no_settings_of_its_code_on_sop():
    with pytest.raises(ConfigError, match="only on inat"):
        load_preset("ranking", "smooth_ap", "sop")
