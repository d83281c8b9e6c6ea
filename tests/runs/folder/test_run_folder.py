import pytest
from omegaconf import OmegaConf

from dml.runs.folder.run_folder import RunFolder, describe_overrides, find_run_folder

CONFIG = OmegaConf.create(
    {
        "seed": 3,
        "device": "cpu",
        "outputs": "outputs",
        "name": "mine",
        "data": {"name": "digits", "workers": 2},
        "loss": {"name": "ms", "alpha": -3, "reducer": "ab/c d$é"},
        "protocol": {"name": "traditional", "epochs": 60},
        "optim": {"name": "sgd", "lr": 0.0003},
        "embedder": {"size": None, "bias": False},
        "transform": {"scale": [0.1, 1]},
        "tracking": {"name": "none"},
    }
)


@pytest.mark.parametrize(
    ("overrides", "description"),
    [
        (["protocol.epochs=60", "optim.lr=3e-4"], "epochs60-lr3e-4"),
        (["optim.lr=0.0003", "protocol.epochs=60"], "epochs60-lr0.0003"),  # in any order
        (["loss=ms", "data=digits", "seed=3", "protocol=traditional"], ""),  # in the name anyway
        (["outputs=x", "device=cpu", "data.workers=2", "name=mine", "tracking=none"], ""),
        (["embedder.size=null", "embedder.bias=false"], "bias_false-size_null"),
        (["transform.scale=[0.1,1]"], "scale0.1+1"),
        (["loss.alpha=-3", "+loss.reducer=ab/c d$é"], "alpha-3-reducer_c_d"),
        (["optim=sgd", "params=mlrc"], "optim_sgd-params_mlrc"),
    ],
)
def test_descriptions(overrides, description):
    assert describe_overrides(CONFIG, overrides) == description


def test_the_digest_decides(tmp_path):
    first = find_run_folder(tmp_path, 0, "1a2b3c4d", "epochs60")
    assert first == tmp_path / "seed0-epochs60-1a2b3c4d"
    first.mkdir(parents=True)
    assert find_run_folder(tmp_path, 0, "1a2b3c4d", "typed-otherwise") == first
    assert find_run_folder(tmp_path, 0, "1a2b3c4d") == first
    assert find_run_folder(tmp_path, 0, "99999999") == tmp_path / "seed0-99999999"
    finished = tmp_path / "seed0-1a2b3c4d"
    finished.mkdir(parents=True)
    (finished / "summary.json").touch()
    (first / "config.yaml").touch()
    assert find_run_folder(tmp_path, 0, "1a2b3c4d", "epochs60") == finished


def test_a_run_keeps_its_name(tmp_path):
    assert RunFolder(tmp_path).run_id() == RunFolder(tmp_path).run_id()
