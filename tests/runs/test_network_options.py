"""Options of dml.embed without effect, and numbers of models that do not exist."""

import pytest

import dml
from dml.core.errors import ConfigError, UserError
from dml.runs.network_options import check_options


@pytest.mark.parametrize(
    ("network", "images", "option", "message"),
    [
        ("run", "im", "backbone.width=8", "backbone.width: has no effect here; the network"),
        ("run", "im", "data.root=x", "data.root: has no effect here"),
        ("run", "im", "data.bakground=red", "did you mean 'data.background'"),
        ("run", "im", "x=1", "x: has no effect here"),
        ("run", "im", "+x=1", "x: has no effect here"),
        ("run", "im", "=1", "=1: not of the form"),
        ("run", "im", "~data", "~data: not of the form"),
        ("run", "im", "", "'': not of the form"),
        ("run", "im", "data=digits", "data: images are im"),
        ("run", "data=digits", "data=glyphs", "data: images are data=digits"),
        ("run", "data=digits", "data.batch_size=7", "data.batch_size: has no effect"),
        ("timm:resnet50", "im", "optim.lr=1", "optim.lr: has no effect"),
        ("timm:resnet50", "im", "backbon.input_size=64", "did you mean 'backbone.input_size'"),
    ],
)
def test_options_without_effect(network, images, option, message):
    with pytest.raises(ConfigError) as error:
        check_options(network, images, [option])
    assert str(error.value).startswith(message) or message in str(error.value)


@pytest.mark.parametrize(
    ("network", "images", "options"),
    [
        ("run", "im", ["data.background=black"]),
        ("run", "data=cub", ["data.root=x", "data.background=black", "+data.reader.x=1"]),
        ("timm:resnet50", "im", ["backbone.input_size=64", "transform.test_resize=64"]),
    ],
)
def test_options_that_act(network, images, options):
    check_options(network, images, options)
    with pytest.raises(ConfigError, match="given twice"):
        check_options(network, images, [*options, options[-1]])


def test_a_number_of_a_single_model(run_tiny, tmp_path):
    _, folder = run_tiny("protocol.epochs=1")
    net = dml.export(folder, tmp_path / "net")
    for source in (net, "timm:test_resnet"):
        with pytest.raises(UserError, match=r"fold: .* single"):
            dml.load(source, fold=7)
        with pytest.raises(UserError, match=r"repeat: .* single"):
            dml.load(source, 0, 0)
    with pytest.raises(UserError, match="fold: "):
        dml.export(net, tmp_path / "again", fold=7)


@pytest.mark.parametrize("count", [{"batch_size": 2**63}, {"batch_size": 0}, {"views": 2**62}])
def test_counts_beyond_any_use(tmp_path, count):
    with pytest.raises(UserError, match="is not between"):
        dml.embed("timm:test_resnet", tmp_path, **count)
