import csv
import json

import numpy as np
import pytest
import torch

from dml.core.errors import UserError
from dml.retrieval import retrieval_metrics
from dml.retrieval.embeddings import SplitEmbeddings
from dml.runs.category_scores import combine_categories, means_of_categories
from tests.data.trees import save

POINTS = torch.randn(60, 5, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(60) % 12
NAMES = np.array(["Vögel", "a/b", "[red]"], dtype=object)[(LABELS % 3).numpy()]
BY = "evaluation.by=category"


def photos(root, categories=("Vögel", "a/b", "[red]"), classes=16):
    """A CSV file of classes of four images, whose categories alternate."""
    lines = ["path,label,category"]
    for row in range(4 * classes):
        save(root / f"{row}.png", row)
        label = row // 4
        lines.append(f"{row}.png,class{label:02d},{categories[label % len(categories)]}")
    (root / "images.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    words = ("data=folder", f"data.root={root}/images.csv", "backbone=small_cnn")
    sizes = ("transform.size=16", "data.batch_size=8", "data.images_per_class=2")
    return [*words, *sizes, "protocol.epochs=1", "protocol.steps_per_epoch=2", "loss=smooth_ap"]


def scores_of(points, labels, names) -> dict[str, dict[str, float]]:
    return SplitEmbeddings(points, labels).score_categories(names)


def test_queries_of_a_category_are_ranked_among_all_images():
    scores = scores_of(POINTS, LABELS, NAMES)
    distances = torch.cdist(POINTS.double(), POINTS.double()).fill_diagonal_(torch.inf)
    hits = (LABELS[distances.argsort(dim=1)] == LABELS[:, None])[:, :-1].double()
    precision = hits[:, :4].cumsum(1) / torch.arange(1, 5) * hits[:, :4]
    assert list(scores) == ["Vögel", "[red]", "a/b"]
    for name, numbers in scores.items():
        rows = torch.from_numpy(name == NAMES)
        assert (numbers["queries"], numbers["queries_without_match"]) == (20, 0)
        assert numbers["recall_at_1"] == pytest.approx(hits[rows, 0].mean().item())
        assert numbers["map_at_r"] == pytest.approx((precision[rows].sum(1) / 4).mean().item())


@pytest.mark.parametrize("with_gallery", [False, True])
def test_weighted_by_queries_they_are_the_scores_of_all(with_gallery):
    embeddings = SplitEmbeddings(POINTS, LABELS)
    names = np.where(np.arange(60) < 7, "few", "many").astype(object)
    if with_gallery:
        names = names[:30]
        self_index = torch.where(torch.arange(30) < 10, torch.arange(30), -1)
        embeddings = SplitEmbeddings(POINTS[:30], LABELS[:30], POINTS, LABELS, self_index)
    parts = embeddings.score_categories(names).values()
    whole = retrieval_metrics(*embeddings[:4], self_index=embeddings.self_index, recall_at=[1])
    total = sum(part["queries"] for part in parts)
    assert total == whole["queries"]
    for name in ("recall_at_1", "map_at_r"):
        mean = sum(part["queries"] * part[name] for part in parts) / total
        assert mean == pytest.approx(whole[name])


@pytest.mark.promise(
    "guides/categories.md",
    "no query of a category has a match: the category has no score, and does not count in the "
    "means",
)
def test_a_category_without_a_match_has_no_score_and_is_not_in_the_mean():
    labels = LABELS.clone()
    labels[:3] = torch.arange(20, 23)  # alone in their classes
    names = np.array(["alone"] * 3 + ["x"] * 20 + ["y"] * 37, dtype=object)
    scores = scores_of(POINTS, labels, names)
    assert scores["alone"] == {"queries": 0, "queries_without_match": 3}
    means = means_of_categories(scores)
    for name in ("recall_at_1", "map_at_r"):
        expected = (scores["x"][name] + scores["y"][name]) / 2
        assert means[f"category_{name}"] == pytest.approx(expected)
    assert means_of_categories({"alone": scores["alone"]}) == {}
    combined = combine_categories([{"repeat": 0, "categories": scores}])
    assert combined["alone"] == {"queries": 0, "queries_without_match": 3}


def test_a_hundred_categories():
    names = np.array([f"category {row % 100}" for row in range(600)], dtype=object)
    points = torch.randn(600, 3, generator=torch.Generator().manual_seed(1))
    scores = scores_of(points, torch.arange(600) % 200, names)
    assert len(scores) == 100
    assert {numbers["queries"] for numbers in scores.values()} == {6}


def test_summary_file_and_console(run_tiny, tmp_path, capsys):
    words = photos(tmp_path)
    plain, other = run_tiny(*words)
    capsys.readouterr()
    summary, folder = run_tiny(*words, BY)
    out = capsys.readouterr().out
    assert other != folder
    assert (other / "history.csv").read_bytes() == (folder / "history.csv").read_bytes()
    assert "categories" not in plain
    assert not (other / "categories.csv").exists()
    for name, value in plain["metrics"].items():
        assert summary["metrics"][name] == value
    scores = summary["categories"]
    assert scores == json.loads((folder / "summary.json").read_text())["categories"]
    assert sum(numbers["queries"] for numbers in scores.values()) == 32
    mean = np.mean([numbers["map_at_r"]["mean"] for numbers in scores.values()])
    assert summary["metrics"]["category_map_at_r"]["mean"] == pytest.approx(mean)
    with open(folder / "categories.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["category"] for row in rows] == list(scores)
    for row in rows:
        assert (row["evaluation"], row["repeat"], row["fold"]) == ("single", "0", "0")
        assert float(row["recall_at_1"]) == scores[row["category"]]["recall_at_1"]["mean"]
    assert "MAP@R, mean of categories" in out
    assert all(name in out for name in scores)


def test_folds_and_joined_models_have_them(run_tiny, tmp_path, capsys):
    summary, folder = run_tiny(*photos(tmp_path), BY, "protocol=mlrc", "protocol.repeats=2")
    joined = summary["concatenated"]
    assert list(joined["categories"]) == list(summary["categories"])
    for name, numbers in summary["categories"].items():
        assert (numbers["map_at_r"]["repeats"], numbers["queries"]) == (
            2,
            joined["categories"][name]["queries"],
        )
        folds = [result["categories"][name]["map_at_r"] for result in summary["jobs"]]
        assert numbers["map_at_r"]["mean"] == pytest.approx(np.mean(folds))
    assert "category_map_at_r" in joined["metrics"]
    lines = (folder / "categories.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 1 + len(summary["categories"]) * (8 + 2)
    assert "MAP@R concatenated" in capsys.readouterr().out


def test_evaluate_scores_the_categories_of_a_run_without_them(run_tiny, tmp_path, evaluated):
    words = photos(tmp_path)
    summary, folder = run_tiny(*words, BY)
    _, plain = run_tiny(*words)
    result = evaluated(f"run={plain}", BY, given=["run", "evaluation.by"])
    for name, numbers in result["categories"].items():
        expected = summary["categories"][name]["map_at_r"]["mean"]
        assert numbers["map_at_r"] == pytest.approx(expected)
    assert "categories" not in evaluated(f"run={plain}", given=["run"])
    assert "categories" in evaluated(f"run={folder}", given=["run"])
    null = evaluated(f"run={folder}", "evaluation.by=null", given=["run", "evaluation.by"])
    assert "categories" not in null


FEW = ["data.sampler=category", "data.categories_per_batch=8", "data.batch_size=16"]


@pytest.mark.parametrize(
    ("categories", "words", "message"),
    [
        (None, [BY], "evaluation.by: data 'digits' has no categories; SOP"),
        (None, ["data.sampler=category", "loss=ms"], "data.sampler: data 'digits' has no categor"),
        (["a", ""], ["data.sampler=category"], "data.sampler: .* images have no category, first"),
        (["a", ""], [BY], "evaluation.by: .* of 32 images have no category, first"),
        ([*"abcdefg"], FEW, "data.categories_per_batch: 8 different categories"),
        ("mixed", ["data.sampler=category"], "data.sampler: class 'class.*categories 'a' and 'b'"),
    ],
)
@pytest.mark.promise(
    "guides/categories.md",
    "the data has no categories, a training image has none, or a class has two: a batch of "
    "categories is refused in one line, before a run folder is made",
)
def test_what_is_missing_is_refused_before_the_folder(
    run_tiny, tmp_path, categories, words, message
):
    data = ["data=digits"]
    if categories == "mixed":
        data = photos(tmp_path, ["a"])
        table = tmp_path / "images.csv"
        images = table.read_text().splitlines()
        images[1::2] = [line[:-1] + "b" for line in images[1::2]]
        table.write_text("\n".join(images))
    elif categories is not None:
        data = photos(tmp_path, categories)
    with pytest.raises(UserError, match=f"^{message}") as raised:
        run_tiny(*data, *words)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "outputs").exists()


@pytest.mark.promise(
    "guides/categories.md",
    "a fold has fewer categories than a batch: the run is refused before its first model is "
    "trained",
)
def test_every_fold_is_tried_before_the_folder(run_tiny, tmp_path):
    """The first fold trains classes of a and b, the second one those of b alone."""
    words = photos(tmp_path, ("a", "b", "b", "b", "c", "c", "c", "c"), classes=8)
    words += ["data.reader.split_seed=null", "protocol=mlrc", "data.sampler=category"]
    with pytest.raises(UserError, match=r"data.categories_per_batch: 2 .* have 1"):
        run_tiny(*words)
    assert not (tmp_path / "outputs").exists()


@pytest.mark.promise(
    "guides/categories.md",
    "the categories have changed since a run began: the run is not continued if it uses them",
)
def test_a_run_with_other_categories_is_not_continued(run_tiny, tmp_path):
    words = [*photos(tmp_path), "data.sampler=category"]
    run_tiny(*words)
    run_tiny(*words)
    photos(tmp_path, ("one", "two"))
    with pytest.raises(UserError, match="has other categories"):
        run_tiny(*words)
    plain = photos(tmp_path)
    run_tiny(*plain)
    photos(tmp_path, ("one", "two"))
    run_tiny(*plain)  # which they do not matter to
