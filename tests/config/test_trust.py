import sys
from pathlib import Path

import pytest
import yaml

from dml.config.stored_network import join_line, parse_line, parse_network
from dml.config.trust import OPEN, check_content, find_named, is_allowed, shipped_targets
from dml.core.errors import ConfigError, UserError
from dml.core.installation import CONFIGS

SOURCE = Path("of a stranger.yaml")


def test_what_the_shipped_configs_name_is_allowed():
    named = set()
    for path in CONFIGS.rglob("*.yaml"):
        content = yaml.safe_load(path.read_text())
        named |= {one.target for one in find_named(content)}
    named = {target for target in named if target != "???" and "${" not in target}
    in_grids = {
        "pytorch_metric_learning.distances.LpDistance",
        "pytorch_metric_learning.miners.BatchHardMiner",
    }
    assert named | in_grids == shipped_targets()
    assert all(map(is_allowed, named))


@pytest.mark.parametrize(
    "target",
    [
        *("dml.losses.C1Loss", "dml.losses.generic.NCALoss", "dml.methods.metrix.Metrix"),
        *(
            "dml.models.small_cnn.SmallCNN",
            "torch.optim.NAdam",
            "torch.optim.lr_scheduler.CyclicLR",
        ),
        *("torchvision.transforms.v2.RandomRotation", "pytorch_metric_learning.losses.VICRegLoss"),
        *("pytorch_metric_learning.miners.PairMarginMiner", "torch.optim.sgd.SGD"),
        *("pytorch_metric_learning.distances.LpDistance", "dml.data.readers.cub.read_cub"),
        *("pytorch_metric_learning.reducers.MeanReducer", "dml.tracking.Tracker"),
        *("pytorch_metric_learning.regularizers.LpRegularizer",),
        *("pytorch_metric_learning.samplers.MPerClassSampler",),
    ],
)
def test_classes_of_open_packages_are_allowed(target):
    assert is_allowed(target)


@pytest.mark.parametrize(
    "target",
    [
        *(
            "dml.models.weights.Path",
            "dml.models.weights.nn.Module",
            "dml.models.weights.torch.load",
        ),
        *("dml.models.weights.find_weights", "dml.losses.generic.nn.Linear", "dml.train", "dml"),
        *("torch.optim.SGD.step", "torch.optim.SGD.__base__", "torch.optim.sgd._single_tensor_sgd"),
        *("torch.optim", "torch.optim.optimizer.Path", "torch.optim.optimizer.torch.load"),
        *("torchvision.transforms.v2.functional.resize", "torchvision.transforms.v2.Lambda.x"),
        *(
            "pytorch_metric_learning.losses",
            "pytorch_metric_learning.utils.inference.InferenceModel",
        ),
        *("torch.optimal.X", "dml.lossesx.X", "dml.losses", "torch.optim.lr_scheduler.weakref.ref"),
        *(
            "dml.data.preparation.unpack.unpack",
            "builtins.eval",
            "os.system",
            "eval",
            "dml.losses:C1Loss",
            "",
        ),
    ],
)
def test_what_is_no_class_of_its_own_module_is_not(target):
    assert not is_allowed(target)


def test_nothing_outside_of_the_open_packages_is_imported(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package/__init__.py").write_text("raise SystemExit")
    (tmp_path / "my_package/inner.py").write_text("raise SystemExit")
    before = {*sys.modules}
    for target in ("my_package.inner.X", "my_package.X", "antigravity.x", "this.s"):
        with pytest.raises(ConfigError, match=r"stranger\.yaml: loss\._target_: .* would run code"):
            check_content({"loss": {"_target_": target}}, SOURCE)
    new = {name for name in {*sys.modules} - before if not name.startswith(OPEN)}
    assert not {name for name in new if name.startswith(("my_package", "antigravity", "this"))}


@pytest.mark.parametrize(
    ("target", "named"),
    [
        ("my_code.X", "my_code.py"),
        ("pandas.read_pickle", "the package pandas"),
        ("no_such_package.x", "no_such_package, which is not installed here"),
    ],
)
def test_the_refusal_names_what_would_run(tmp_path, monkeypatch, target, named):
    monkeypatch.chdir(tmp_path)
    Path("my_code.py").write_text("raise SystemExit")
    with pytest.raises(ConfigError) as refusal:
        check_content({"a": [{"b": {"_target_": target}}]}, SOURCE)
    (line,) = refusal.value.problems
    assert line.startswith(f"{SOURCE}: a[0].b._target_: {target} would run code of {named};")
    assert "trust=true" in line
    check_content({"a": [{"b": {"_target_": target}}]}, SOURCE, trust=True)


def test_only_a_transform_may_be_of_no_class():
    check_content({"transform": {"_target_": None}}, SOURCE)
    for content in ({"loss": {"_target_": None}}, {"a": {"transform": {"_target_": None}}}):
        with pytest.raises(ConfigError, match="is not the dotted name"):
            check_content(content, SOURCE)


@pytest.mark.parametrize(
    ("targets", "counted"),
    [
        (["my_code.X"], "my_code.X would"),
        (["my_code.X", "dml.losses.C1Loss", "my_code.X"], "my_code.X would"),
        (["my_code.X", "my_code.Y", "my_code.X", "my_code.Y"], "my_code.X (and 1 more) would"),
        (["my_code.X", "my_code.Y", "other.Z"], "my_code.X (and 2 more) would"),
    ],
)
def test_the_refusal_counts_every_name_once(targets, counted):
    content = {"a": [{"_target_": target} for target in targets]}
    with pytest.raises(ConfigError) as refusal:
        check_content(content, SOURCE)
    assert refusal.value.problems[0].startswith(f"{SOURCE}: a[0]._target_: {counted} run code of")


@pytest.mark.parametrize(
    "node",
    [
        *({"_args_": [1]}, {"_partial_": True}, {"_recursive_": False}, {"_convert_": "all"}),
        *({"_new_": 1}, {"hydra": {"x": 1}}, {"hydra/launcher": "slurm"}, {"x": "${oc.env:HOME}"}),
        *({"_target_": "hydra.utils.get_class"}, {"_target_": "a b"}, {"_target_": "a.b()"}),
        *({"_target_": "a-b.c"}, {"_target_": 3}, {"_target_": None}, {"x": ["${x}"]}),
        *({"${x}": 1}, {"loss._args_": [1]}, {"space": {"_target_": {"choices": ["a b"]}}}),
    ],
)
def test_what_no_file_may_hold(node):
    for trust in (False, True):
        with pytest.raises(ConfigError, match=r"stranger\.yaml: "):
            check_content({"a": {"b": [node]}}, SOURCE, trust)
        with pytest.raises(ConfigError, match=r"stranger\.yaml: "):
            check_content(node, SOURCE, trust)


@pytest.mark.parametrize(
    "node",
    [
        *({"space": {"loss._target_": {"choices": ["dml.losses.C1Loss", "my_code.X"]}}},),
        *({"space": {"loss": {"choices": [{"_target_": "my_code.X"}]}}},),
        *({"loss.miner._target_": "my_code.X"}, {"loss": {"_target_": ["my_code.X"]}}),
        *({"loss": {"a": [[[{"_target_": "my_code:X"}]]]}},),
    ],
)
def test_names_are_found_wherever_they_stand(node):
    with pytest.raises(ConfigError, match="my_code"):
        check_content(node, SOURCE)


LEGITIMATE = [
    *("data=folder", "data=cub", "protocol=mlrc", "backbone.input_size=64", "precision=bf16"),
    *("backbone.mean=[0.5, 0.5,.5]", "backbone.std=[1e-1,0.2,0.3]", "backbone.weights=none"),
    *("backbone.weights=weights/my net.safetensors", "backbone.interpolation=bicubic"),
    *("embedder.pooling=avg+max", "embedder.head=none", "transform.size=null"),
    *("transform.scale=[0.2,1]", "transform.test_resize=auto", "data.background='#ff0000'"),
    *("data.background=black", "backbone.crop_share=0.95", "channels_last=true"),
]


def test_options_that_embed_writes_are_taken():
    network = parse_network("timm:vit_small_patch16_224.augreg_in21k", LEGITIMATE, "x")
    assert network.options == LEGITIMATE
    line = join_line("outputs/a b/seed0-1,x=2", LEGITIMATE)
    assert parse_line(line, "x") == ("outputs/a b/seed0-1,x=2", LEGITIMATE)
    of_images = ["data.root=/my/images", "data.reader.classes=8", "data.workers=2", "device=cpu"]
    assert parse_network("net", of_images, "x").options == []


@pytest.mark.parametrize(
    "option",
    [
        *("backbone.mean={a:1}", "backbone.mean=[{a:1}]", "backbone.mean=$x", "backbone=timm"),
        *("backbone.weights=http://x.invalid/y", "backbone.weights=hf:x", "backbone.model=x"),
        *("+backbone.x=1", "~backbone.mean", "embedder._target_=x", "embedder={a:1}", "x=1"),
        *("data=../x", "data=a,b", "tracking=wandb", "outputs=x", "loss._target_=x", ""),
        *("backbone.mean=[1,2", "backbone.mean=range(3)", "data.background='a", "hydra.x=1"),
    ],
)
def test_other_options_are_not(option):
    with pytest.raises(UserError, match="not taken from a file"):
        parse_network("timm:resnet50", [option], "x")


def test_a_choice_of_a_group_is_no_path(tmp_path):
    """Neither to a file of somebody else, nor to one of another group."""
    (tmp_path / "x.yaml").write_text("loss: {_target_: os.system}")
    for choice in (tmp_path / "x", "../loss/ms", "./cub", "../data/cub"):
        with pytest.raises(UserError, match="not taken from a file"):
            parse_network("timm:resnet50", [f"data={choice}"], "x")
    assert parse_network("timm:resnet50", ["data=cub"], "x").options == ["data=cub"]


def test_a_network_of_the_hub_needs_trust():
    with pytest.raises(UserError, match="nothing is fetched"):
        parse_network("timm:hf-hub:a/b", [], "x")
    assert parse_network("timm:hf-hub:a/b", [], "x", trust=True).name == "timm:hf-hub:a/b"
    with pytest.raises(UserError, match="nothing is fetched"):
        parse_network("hf:a/b", [], "x")
    assert parse_network("hf:a/b", [], "x", trust=True).name == "hf:a/b"
    with pytest.raises(UserError):
        parse_network("https://x.invalid/a", [], "x", trust=True)


@pytest.mark.parametrize(
    "node",
    [
        *({"backbone": {"weights": "https://x.invalid/y"}}, {"loss": {"a": [{"b": "hf:a/b"}]}}),
        *({"search": {"storage": "sqlite:///x.db"}}, {"tracking": {"settings": {"a": "b"}}}),
        *({"tracking": {"uri": "databricks"}}, {"tracking": {"uri": "sqlite:///x.db"}}),
        *({"method": {"model": "HF-Hub:a/b"}}, {"data": {"root": "S3://a"}}),
    ],
)
def test_what_a_training_would_reach(node):
    with pytest.raises(ConfigError, match=r"stranger\.yaml: .*trust=true"):
        check_content(node, SOURCE)
    check_content(node, SOURCE, trust=True)


@pytest.mark.parametrize(
    "target", ["dml.models.backbones.TimmBackbone", "dml.models.bn_inception.BNInception"]
)
@pytest.mark.parametrize("weights", [{}, {"weights": "imagenet"}, {"weights": "mine.pt"}])
def test_a_second_network_would_be_downloaded(target, weights):
    content = {"loss": {"teachers": [{"_target_": target, **weights}]}}
    with pytest.raises(ConfigError, match=r"loss\.teachers\[0\]: the weights .* be downloaded"):
        check_content(content, SOURCE)
    check_content(content, SOURCE, trust=True)
    check_content({"backbone": {"_target_": target, **weights}}, SOURCE)


@pytest.mark.parametrize(
    "node",
    [
        *({"_target_": "dml.models.backbones.TimmBackbone", "weights": x} for x in (None, "none")),
        {"_target_": "dml.models.small_cnn.SmallCNN"},
    ],
)
def test_a_second_network_without_weights_needs_no_trust(node):
    check_content({"loss": {"teachers": [node]}}, SOURCE)


def test_what_is_typed_again_or_was_never_stored_needs_no_trust():
    check_content({"search": {"storage": "sqlite:///x.db"}}, SOURCE, typed={"search.storage"})
    check_content({"search": {"storage": "postgresql://me:***@host"}}, SOURCE)
    check_content({"tracking": {"settings": {"init_timeout": 90, "raises": True}}}, SOURCE)
    check_content({"note": "https://x.invalid", "name": "hf:x"}, SOURCE)
    unused = {"search": {"storage": "sqlite:///x.db"}, "backbone": {"weights": "https://x.invalid"}}
    check_content(unused, SOURCE, trains=False)


ADDRESSES = [
    *("http://x/y", "HTTPS://x", "http:x/y", "http:/x", "https:\\\\x\\y", "ftp:x", "file:/x"),
    *(" http://x", "\x00http://x", "\x1fhf-hub:a/b", "ht\ttp://x", "http\n://x", "h f-hub:a/b"),
    *("hf\t-hub:a/b", "HF_HUB:a/b", "local\r-dir:x", "\u00a0hf-hub:a/b", "s3://x", "x+y://z"),
]


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("option", ["model", "weights", "other"])
def test_addresses_are_known_however_they_are_written(address, option):
    content = {"backbone": {"_target_": "dml.models.small_cnn.SmallCNN", option: address}}
    with pytest.raises(ConfigError, match="would be fetched from elsewhere"):
        check_content(content, Path("config.yaml"))
    check_content(content, Path("config.yaml"), trust=True)


@pytest.mark.parametrize("name", ["hf", "a: b", "C:\\data", "C:/data", "files/x", "https", "1:1"])
def test_names_are_no_addresses(name):
    check_content({"backbone": {"other": name}}, Path("config.yaml"))
