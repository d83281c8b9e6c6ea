import pytest

from dml.config.unknown_options import explain_unknown

OPTIONS = [
    *("seed", "loss", "loss.name", "loss._target_", "loss.batch_kind", "loss.alpha", "loss.beta"),
    *("optim.args", "optim.args.eps"),
]
NODE = {"_target_": "dml.losses.MeanFieldClassWiseMultiSimilarityLoss"}


def problem(name, value="0.2", node=NODE):
    return explain_unknown(name, value, OPTIONS, ["loss"], node, lambda name, value: "")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("loss.margin", "; write loss=arcface loss.margin=0.2 (also "),
        ("loss.alpa", "; did you mean 'loss.alpha'?"),
        ("loss.batchkind", "; did you mean 'loss.batch_kind'?"),
        ("loss.wheel", "; valid are loss.batch_kind, loss.alpha, loss.beta"),
        ("optim.args.ep", "; did you mean 'optim.args.eps'?; +optim.args.ep=0.2 adds it"),
        ("seeed", "; did you mean 'seed'?"),
    ],
)
def test_hints(name, hint):
    assert problem(name).startswith(f"{name}: no such option{hint}")


def test_only_arguments_of_the_class_are_added():
    takes_it = {"_target_": "pytorch_metric_learning.losses.ContrastiveLoss"}
    assert problem("loss.pos_margin", node=takes_it).endswith("+loss.pos_margin=0.2 adds it")
    assert problem("loss.scale", node={"_target_": "???"}).endswith("+loss.scale=0.2 adds it")
    assert "adds it" not in problem("loss.scale")
