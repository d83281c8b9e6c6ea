"""Metrics of users: columns beside the scores, at every evaluation or of the best network alone."""

import csv
import math

import numpy as np
import pytest
import torch
from sklearn.metrics import silhouette_score

from dml.config.check import check
from dml.core import metric_names
from dml.core.errors import ConfigError
from dml.results.frame import COLUMNS, load_runs
from dml.retrieval.embeddings import SplitEmbeddings
from dml.runs.build import Builder
from dml.runs.custom_metrics import CustomMetric
from dml.tracking.history import FIRST

POINTS = torch.nn.functional.normalize(torch.randn(30, 5, generator=torch.Generator()))
LABELS = torch.arange(30) % 3


def spread(embeddings, labels, factor=1.0):
    return factor * embeddings.std().item()


def gallery_size(embeddings, labels, *, gallery_embeddings, self_index=None):
    return {"size": 0 if gallery_embeddings is None else len(gallery_embeddings), "one": 1}


class Hits:
    """P@1 of a few images."""

    def __init__(self, first=10):
        self.first = first

    def __call__(self, embeddings, labels):
        distances = torch.cdist(embeddings[: self.first], embeddings)
        nearest = distances.topk(2, largest=False).indices[:, 1]
        return (labels[nearest] == labels[: self.first]).double().mean()


class Failing:
    """Fails from some call on."""

    def __init__(self, calls, value=0.5):
        self.calls, self.value = calls, value

    def __call__(self, embeddings, labels):
        self.calls -= 1
        if self.calls < 0:
            return 1 / 0
        return self.value


def chosen(name, **node):
    target = f"{__name__}.{node.pop('target', name)}"
    words = [f"+evaluation.metrics.{name}._target_={target}"]
    return words + [f"+evaluation.metrics.{name}.{key}={value}" for key, value in node.items()]


def history_of(folder):
    with open(folder / "history.csv", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def metric(function, **node):
    return CustomMetric("mine", {"_target_": f"{__name__}.{function}", **node})


def test_it_is_called_with_embeddings_and_labels():
    alone = SplitEmbeddings(POINTS, LABELS)
    assert metric("spread", factor=2).score(alone) == {"mine": 2 * POINTS.std().item()}
    assert metric("Hits", first=5).score(alone)["mine"] == Hits(5)(POINTS, LABELS)
    assert metric("gallery_size").score(alone) == {"mine_size": 0, "mine_one": 1}
    with_gallery = SplitEmbeddings(POINTS, LABELS, POINTS[:20], LABELS[:20])
    assert metric("gallery_size").score(with_gallery)["mine_size"] == 20


def test_columns_of_a_metric_have_its_whole_name():
    columns = ["map_at_r", "nm", "nmi", "nm_low", "nm2_low", "low_nm", "other_a"]
    assert metric_names.select_columns(columns, ["nm"]) == ["nm", "nm_low"]
    assert metric_names.select_columns(columns, ["other", "nm2"]) == ["nm2_low", "other_a"]
    assert metric_names.select_columns(columns, []) == []


def test_a_function_of_scikit_learn():
    of_sklearn = CustomMetric("x", {"_target_": "sklearn.metrics.silhouette_score"})
    expected = silhouette_score(POINTS.numpy(), LABELS.numpy())
    assert of_sklearn.score(SplitEmbeddings(POINTS, LABELS)) == {"x": pytest.approx(expected)}


def test_columns_of_history_summary_and_tables(run_tiny, tmp_path):
    best_only = chosen("hits", target="Hits", first=50, best_only="true")
    summary, folder = run_tiny(*chosen("spread", factor=3), *best_only)
    rows = history_of(folder)
    assert all(0 < float(row["spread"]) < 3 and "hits" not in row for row in rows)
    assert summary["untrained"]["spread"]["mean"] == float(rows[0]["spread"])
    best = rows[int(summary["best_epoch"][0])]
    assert summary["metrics"]["spread"]["mean"] == pytest.approx(float(best["spread"]))
    assert 0 <= summary["metrics"]["hits"]["mean"] <= 1
    assert "hits" not in summary["untrained"]
    table = load_runs(folder.parents[2])
    assert table.custom_metrics == ["spread", "hits"]
    assert table.table["spread"].iloc[0] == summary["metrics"]["spread"]["mean"]  # not in percent
    plain, other = run_tiny()
    assert other != folder
    for name, value in plain["metrics"].items():
        assert summary["metrics"][name] == value  # a metric does not change the training


def test_the_console_shows_them(run_tiny, capsys):
    run_tiny(*chosen("spread"), "protocol.select_metric=spread")
    out = capsys.readouterr().out
    assert "spread: 0." in out
    assert "(untrained 0." in out
    assert "best epoch by spread" in out


@pytest.mark.parametrize("select", ["spread", "pair_b"])
def test_it_may_select_the_best_epoch(run_tiny, select):
    words = [*chosen("spread", factor=-1), *chosen("pair", target="two")]
    summary, folder = run_tiny(*words, f"protocol.select_metric={select}")
    trained = history_of(folder)[1:]
    values = [float(row[select]) for row in trained]
    best = trained[values.index(max(values))]
    assert summary["best_epoch"] == [float(best["epoch"])]
    assert summary["selected_by"] == f"{select} on test"


def two(embeddings, labels):
    return {"a": embeddings[0, 0], "b": np.float32(-embeddings.abs().sum())}


def test_a_metric_that_fails_costs_its_numbers_and_no_run(run_tiny, capsys):
    summary, folder = run_tiny(*chosen("mine", target="Failing", calls=3))
    rows = history_of(folder)  # two calls are the try before the folder
    assert [row["mine"] for row in rows] == ["0.5", "", ""]
    assert "mine" not in summary["metrics"]
    out = capsys.readouterr().out
    note = "note: evaluation.metrics.mine: it raised ZeroDivisionError: division by zero (test_cus"
    assert out.count(note) == 1


def test_an_evaluation_without_the_selecting_metric_is_not_the_best(run_tiny):
    words = chosen("mine", target="Failing", calls=4, value=-3)
    summary, folder = run_tiny(*words, "protocol.select_metric=mine", "protocol.epochs=3")
    assert [row["mine"] for row in history_of(folder)] == ["-3.0", "-3.0", "", ""]
    assert summary["best_epoch"] == [1.0]


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_numbers_that_are_not_finite_are_left_out(run_tiny, capsys, value):
    summary, _ = run_tiny(*chosen("mine", target="constant", value=f"'{value}'"))
    assert "mine" not in summary["metrics"]
    assert "it returned a number that is not finite" in capsys.readouterr().out


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_one_number_that_is_not_finite_costs_the_others_too(value, capsys):
    several = metric("mixed", value=str(value))
    assert several.score(SplitEmbeddings(POINTS, LABELS)) == {}
    assert "it returned a number that is not finite" in capsys.readouterr().out


def mixed(embeddings, labels, value="1"):
    return {"a": 1.0, "b": float(value)}


ORDERS = [["a", "b"], ["b", "a"]] * 2


def shuffled(embeddings, labels):
    return {name: ord(name) for name in ORDERS.pop()}


def test_the_order_of_several_numbers_does_not_matter():
    assert not [*metric("shuffled").check(8, has_gallery=False)]


def test_a_selecting_metric_without_any_value_is_said(run_tiny, capsys):
    words = chosen("mine", target="constant", value="'nan'")
    summary, _ = run_tiny(*words, "protocol.select_metric=mine")
    assert summary["best_epoch"] == [1.0]
    assert "mine has no value in any evaluation; the first epoch" in capsys.readouterr().out


def constant(embeddings, labels, value="1"):
    return float(value)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("text", "must return a number, or a mapping of names to numbers; returned str"),
        ("matrix", "must return a number, .*returned Tensor"),
        ("nothing", "must return a number, .*returned NoneType"),
        ("failing", r"it raised KeyError: 'x' \(test_custom_metrics.py, line .*called as metric"),
        ("alone", r"it raised alone\(\) takes 1 positional argument but 2 were given"),
    ],
)
def test_it_is_tried_before_the_folder(composed, tmp_path, run_tiny, function, message):
    with pytest.raises(ConfigError, match=f"evaluation.metrics.mine: {message}"):
        run_tiny(*chosen("mine", target=function), f"outputs={tmp_path}")
    assert not [*tmp_path.rglob("config.yaml")]


def text(embeddings, labels):
    return "high"


def matrix(embeddings, labels):
    return embeddings


def nothing(embeddings, labels):
    return None


def failing(embeddings, labels):
    return {}["x"]


def alone(embeddings):
    return 1


def unseeded(embeddings, labels):
    return np.random.default_rng().random()


def seeded(embeddings, labels):
    return torch.rand(()).item() + np.random.random()


def test_notes_before_the_first_evaluation():
    (differs,) = metric("unseeded").check(8, has_gallery=False)
    assert "two passes with equal seeds differ" in differs
    (queries,) = metric("spread").check(8, has_gallery=True)
    assert "it gets the queries alone" in queries
    for function in ("seeded", "gallery_size", "few", "constant"):
        assert not [*metric(function).check(8, has_gallery=function == "gallery_size")]
    assert not [*metric("constant", value="nan").check(8, has_gallery=False)]


def few(embeddings, labels):
    if len(embeddings) < 100:
        raise ValueError("too few")
    return 1


def test_random_numbers_of_a_metric_leave_the_training_alone(run_tiny):
    plain, _ = run_tiny()
    summary, folder = run_tiny(*chosen("mine", target="seeded"))
    assert len({row["mine"] for row in history_of(folder)}) == 1
    for name, value in plain["metrics"].items():
        assert summary["metrics"][name] == value


@pytest.mark.parametrize(
    "name", ["loss", "epoch", "map_at_r", "recall_at_3", "nmi", "test_x", "untrained_x", "a-b", "1"]
)
def test_names_that_other_columns_have(composed, name):
    with pytest.raises(ConfigError, match="is no name for a metric of yours"):
        check(composed(*chosen(name, target="spread")))


def test_all_columns_are_taken():
    assert all(map(metric_names.is_taken, (*COLUMNS, *FIRST)))


def test_history_columns_are_taken(run_tiny):
    _, folder = run_tiny("loss=c1", "method=ccp", "protocol.epochs=1")
    assert all(map(metric_names.is_taken, history_of(folder)[0]))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["protocol.select_metric=spred"], "'spred' must be one of map_at_r .* | spread"),
        (
            ["protocol.select_metric=spread", "+evaluation.metrics.spread.best_only=true"],
            "best_only",
        ),
        (["+evaluation.metrics.spread.factr=1"], "spread takes no such argument"),
        (["+evaluation.metrics.spread.best_only=7"], "best_only"),
    ],
)
def test_mistakes_are_one_line(composed, words, message):
    with pytest.raises(ConfigError, match=message):
        Builder(check(composed(*chosen("spread"), *words))).check_arguments()


def test_evaluate_computes_those_of_the_run_and_of_the_command(run_tiny, evaluated, capsys):
    summary, folder = run_tiny(*chosen("spread"))
    trained = summary["metrics"]["spread"]["mean"]
    scores = evaluated(
        f"run={folder}", "trust=true", "save=float32", *chosen("hits", target="Hits")
    )["metrics"]
    assert scores["spread"] == pytest.approx(trained)
    assert 0 <= scores["hits"] <= 1
    out = capsys.readouterr().out
    assert "spread: " in out
    assert "hits: " in out
    file = next(folder.rglob("embeddings.npz"))
    evaluated(f"embeddings={file}", *chosen("spread"))
    assert f"spread: {trained:.4g}" in capsys.readouterr().out


def test_joined_models_have_them(run_tiny):
    summary, _ = run_tiny(
        *chosen("spread"), "protocol=mlrc", "protocol.epochs=1", "protocol.steps_per_epoch=1"
    )
    joined = summary["concatenated"]["metrics"]["spread"]["mean"]
    assert math.isfinite(joined)
    assert joined != summary["metrics"]["spread"]["mean"]


def test_the_level_of_recall_that_selects_is_computed(run_tiny):
    summary, folder = run_tiny("protocol.select_metric=recall_at_16")
    assert [0 <= float(row["recall_at_16"]) <= 1 for row in history_of(folder)] == [True] * 3
    assert "recall_at_16" in summary["metrics"]


def writing(embeddings, labels):
    embeddings.zero_()
    labels.zero_()
    return 1.0


def test_a_metric_that_writes_into_its_arguments_changes_nothing_else():
    points, labels = POINTS.clone(), LABELS.clone()
    CustomMetric("mine", {"_target_": f"{__name__}.writing"}).score(SplitEmbeddings(points, labels))
    assert torch.equal(points, POINTS)
    assert torch.equal(labels, LABELS)


def several(embeddings, labels):
    return {"a": 1, "b": 2}


def test_a_metric_of_several_columns_selects_by_one_of_them(composed, run_tiny):
    words = chosen("mine", target="several")
    with pytest.raises(ConfigError, match=r"select_metric: mine has several .*mine_a \| mine_b"):
        run_tiny(*words, "protocol.select_metric=mine")
    _, folder = run_tiny(*words, "protocol.select_metric=mine_b", "protocol.epochs=1")
    assert list(csv.DictReader((folder / "history.csv").open()))[-1]["mine_b"] == "2.0"
