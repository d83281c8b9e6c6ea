"""The study of studies/reality_check: its statistics and its page."""

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from omegaconf import OmegaConf
from PIL import Image
from scipy import stats

from dml.core.errors import UserError
from studies.reality_check import check, statistics
from studies.reality_check.declaration import Claim, read_declaration
from studies.reality_check.page import write_page
from studies.reality_check.trainings import IMAGES, Results

PAGES = Path("docs/results")
STUDY = read_declaration(check.DECLARATION)
STUDIES = sorted(
    path.parent.name
    for path in PAGES.glob("*/ranking.csv")
    if (path.parent / "scores.csv.xz").exists()
)


def declared(name):
    return read_declaration(Path(f"studies/{name}/declaration.yaml"))


@pytest.fixture(scope="module")
def results():
    return Results.read(PAGES / check.STUDY)


def class_scores(results, arm):
    """Scores of the length of training that validation chooses, a row per repeat."""
    rows = results.classes[results.classes.arm == arm]
    models = results.scores[results.scores.arm == arm]
    if arm != IMAGES:
        best = max(STUDY.epochs, key=lambda n: models[models.epochs == n].validation.mean())
        rows = rows[rows.epochs == best]
    return rows.drop(columns=["arm", "epochs", "repeat"]).astype(float)


def difference(results, first, second):
    """Points, standard error and degrees of freedom, from the equation."""
    share = class_scores(results, IMAGES).iloc[0]
    share /= share.sum()
    a, b = (class_scores(results, arm) for arm in (first, second))
    deviations = share * (a.mean() - b.mean() - (share * (a.mean() - b.mean())).sum())
    errors = [np.sqrt(len(share) / (len(share) - 1) * (deviations**2).sum())]
    errors += [stats.sem(rows @ share) for rows in (a, b)]
    error = np.linalg.norm(errors)
    counts = np.array([len(share), len(a), len(b)])
    freedom = error**4 / (np.array(errors) ** 4 / (counts - 1)).sum()
    return (share * a.mean()).sum() - (share * b.mean()).sum(), error, freedom


def test_claims_are_those_of_an_independent_computation(results):
    judged = statistics.judge_claims(STUDY, results, statistics.rank_arms(STUDY, results))
    differences = [difference(results, claim.better, claim.than) for claim in judged.itertuples()]
    p_values = [2 * stats.t.cdf(-abs(d / error), freedom) for d, error, freedom in differences]
    ordered = sorted([*p_values, *[1.0] * (len(STUDY.claims) - len(judged))])
    for claim, (points, error, freedom), p in zip(
        judged.itertuples(), differences, p_values, strict=True
    ):
        interval = stats.t.interval(1 - 0.05 / len(STUDY.claims), freedom, points, error)
        np.testing.assert_allclose([claim.points, claim.low, claim.high], [points, *interval])
        products = [q * (len(ordered) - place) for place, q in enumerate(ordered) if q <= p]
        np.testing.assert_allclose(claim.p, min(1, max(products)), rtol=1e-6)


def test_the_error_of_classes_is_that_of_a_bootstrap(results):
    arms = [STUDY.claims[0].better, STUDY.claims[0].than]
    images = class_scores(results, IMAGES).iloc[0].to_numpy()
    gap = np.subtract(*(class_scores(results, arm).mean().to_numpy() for arm in arms))
    drawn = np.random.default_rng(0).integers(len(gap), size=(4000, len(gap)))
    resampled = (gap * images)[drawn].sum(1) / images[drawn].sum(1)
    chosen = results.of_length(statistics.choose_lengths(results))
    found = statistics.compare(chosen.class_scores(), *arms)
    seeds = [stats.sem(class_scores(results, arm) @ images / images.sum()) for arm in arms]
    of_classes = np.sqrt(found.error**2 - np.square(seeds).sum())
    assert of_classes == pytest.approx(resampled.std(), rel=0.05)


@pytest.mark.parametrize("name", STUDIES)
def test_scores_of_classes_average_to_the_scores_of_models(name):
    scores, classes, _, trials = Results.read(PAGES / name)
    table = classes.set_index(["arm", "epochs", "repeat"]).astype(float)
    share = table.loc[IMAGES].iloc[0]
    means = scores.groupby(["arm", "epochs", "repeat"]).map_at_r.agg(["mean", "size"])
    found = (table @ share / share.sum())[means.index]
    np.testing.assert_allclose(found, means["mean"], atol=1e-4)
    assert means["size"].nunique() == trials.groupby("arm").size().nunique() == 1
    assert means.groupby(["arm", "epochs"]).size().nunique() == 1  # as many repeats
    assert {*means.groupby("arm").size()} == {2 * scores.repeat.nunique()}  # both lengths
    assert {*scores.arm} == {*trials.arm} <= {*declared(name).arms}


@pytest.mark.parametrize("name", STUDIES)
def test_the_page_is_that_of_the_tables(name, tmp_path):
    write_page(declared(name), Results.read(PAGES / name), tmp_path, name)
    shipped = PAGES / f"{name}.md"
    assert (tmp_path / shipped.name).read_text("utf-8") == shipped.read_text("utf-8")
    written, stored = (pd.read_csv(folder / name / "ranking.csv") for folder in (tmp_path, PAGES))
    pd.testing.assert_frame_equal(written, stored, rtol=1e-6)
    for picture in (tmp_path / name).glob("*.png"):
        with Image.open(picture) as image:
            assert image.mode == "P", f"{picture.name} has no palette: studies.pictures.save_small"


def test_holm():
    np.testing.assert_allclose(statistics.holm([0.03, 0.01, 0.04]), [0.06, 0.03, 0.06])


@pytest.mark.parametrize(
    ("change", "message"),
    [({"reference": "mss"}, "no arm mss"), ({"margin": -1}, "margin"), ({"arm": {}}, "arm")],
)
def test_a_contradictory_declaration(tmp_path, change, message):
    file = tmp_path / "declaration.yaml"
    OmegaConf.save({**OmegaConf.to_object(OmegaConf.load(check.DECLARATION)), **change}, file)
    with pytest.raises(UserError, match=message):
        read_declaration(file)


def made(edge="", stages=1, short=0):
    """Results of arms with scores 15 (`low`), 20 (`high`, `again`) and 20.02 (`near`).

    After the shorter training, `high` has `short` points more, and validation scores are worse.
    """
    rng = np.random.default_rng(0)
    arms = {"low": 15, "high": 20, "again": 20, "near": 20.02}
    of_classes = rng.normal(size=60)
    scores, names = [], [*map(str, range(60))]
    classes = [{"arm": IMAGES, "epochs": 0, "repeat": 0, **dict.fromkeys(names, 5)}]
    for (arm, mean), epochs, repeat in product(arms.items(), STUDY.epochs, range(5)):
        is_short = epochs == STUDY.epochs[0]
        values = mean + of_classes + rng.normal(size=60) / 10 + short * (is_short and arm == "high")
        model = {"arm": arm, "epochs": epochs, "repeat": repeat}
        classes.append({**model, **dict(zip(names, values, strict=True))})
        row = {"map_at_r": values.mean(), "precision_at_1": 40, "untrained": 10, "steps": 400}
        row |= {"stages": stages, "edges": edge, "validation": 29 if is_short else 30}
        scores.append({**model, **row})
    return Results(pd.DataFrame(scores), pd.DataFrame(classes), pd.DataFrame(), pd.DataFrame())


@pytest.mark.parametrize(
    ("than", "settings", "results", "verdict"),
    [
        ("low", {}, {}, "better"),
        ("near", {}, {}, "equivalent"),
        ("near", {"margin": 0.01}, {}, "unknown"),
        ("low", {"margin": 9}, {}, "equivalent"),
        ("low", {"learned": 9}, {}, "not tested"),
        ("low", {"requires": {"stages": 2}}, {}, "not tested"),
        ("low", {"requires": {"stages": 2}}, {"stages": 2}, "better"),
        ("low", {}, {"short": -4}, "better"),
        ("low", {}, {"short": -6}, "still rising"),
        ("near", {}, {"short": -0.5}, "equivalent"),
        ("near", {}, {"short": -2}, "still rising"),
        ("low", {}, {"edge": "optim.lr"}, "unknown"),
        ("near", {}, {"edge": "optim.lr"}, "unknown"),
    ],
)
def test_verdicts(than, settings, results, verdict):
    claim = Claim(better="high", than=than, source="a test", requires=settings.pop("requires", {}))
    update = {"claims": [claim], "same": ("high", "again"), "reference": "low", **settings}
    study, tables = STUDY.model_copy(update=update), made(**results)
    judged = statistics.judge_claims(study, tables, statistics.rank_arms(study, tables))
    assert judged.verdict.tolist() == [verdict]
