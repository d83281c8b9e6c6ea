"""Comparisons: searches as a part of each arm, their statistics, and a small one to its page."""

from argparse import Namespace
from itertools import combinations, pairwise, product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from omegaconf import OmegaConf
from scipy import stats

import dml
from dml.core.errors import UserError
from dml.core.locks import try_lock
from studies import compare as command
from studies.comparison import pictures, simulation, statistics
from studies.comparison.agreement import correlate, find_agreement
from studies.comparison.declaration import Claim, Sibling, read_declaration
from studies.comparison.findings import count_lengths, count_shared_verdicts, summarize_claims
from studies.comparison.page import split_introduction, write_page
from studies.comparison.results import Results, round_other_trials
from studies.comparison.table_files import IMAGES
from studies.comparison.trainings import train_search, without_search
from tests.runs.test_stored_features import write

FILE = Path("studies/heads_emoji/declaration.yaml")
STUDY = read_declaration(FILE)
NAMES = [str(label) for label in range(60)]


def made(means, searches=5, spread=0.1, **columns):
    """Results of arms with the given means; a search adds noise of a standard deviation."""
    rng = np.random.default_rng(0)
    of_classes = rng.normal(size=60)
    scores = []
    classes = [{"arm": IMAGES, "search": 0, "epochs": 0, **dict.fromkeys(NAMES, 5)}]
    for (arm, mean), search in product(means.items(), range(searches)):
        noise = rng.normal(0, spread)
        for place, epochs in enumerate(STUDY.epochs):
            values = mean + noise + of_classes + rng.normal(size=60) / 10
            key = {"arm": arm, "search": search, "epochs": epochs}
            classes.append({**key, **dict(zip(NAMES, values, strict=True))})
            row = {
                "fold": 0,
                "map_at_r": values.mean(),
                "precision_at_1": 40,
                "best_step": 400,
            }
            row |= {"untrained": 10, "steps": 400, "best_step": 400, "stages": 1, "edges": ""}
            row |= {"validation": 30 + 0.1 * place}
            for name, value in columns.items():
                row[name] = value(place) if callable(value) else value
            scores.append({**key, **row})
    return Results(pd.DataFrame(scores), pd.DataFrame(classes), pd.DataFrame(), pd.DataFrame())


MEANS = {"low": 15, "high": 20, "near": 20.02, "worst": 9}


@pytest.mark.parametrize(
    ("than", "settings", "columns", "verdict"),
    [
        ("low", {}, {}, "better"),
        ("near", {}, {}, "equivalent"),
        ("near", {"margin": 0.01}, {}, "unknown"),
        ("near", {"margin": None}, {}, "unknown"),
        ("low", {"margin": 9}, {}, "equivalent"),
        ("worst", {}, {}, "search failed"),
        ("low", {"requires": {"stages": 2}}, {}, "not tested"),
        ("low", {"requires": {"stages": 2}}, {"stages": 2}, "better"),
        ("low", {"claimed_searches": 6}, {}, "not finished"),
        ("low", {}, {"validation": lambda place: 30 + place}, "still rising"),
        ("near", {}, {"validation": lambda place: 30 + place}, "still rising"),
        ("low", {}, {"validation": lambda place: 30 + 0.4 * place}, "better"),
        ("low", {}, {"edges": "optim.lr"}, "unknown"),
        ("near", {}, {"edges": "optim.lr"}, "unknown"),
    ],
)
def test_verdicts(than, settings, columns, verdict):
    claim = Claim(better="high", than=than, source="a test", requires=settings.pop("requires", {}))
    arms = {name: [] for name in MEANS}
    changes = {"arms": arms, "claims": [claim], "reference": "low", **settings}
    study = STUDY.model_copy(update=changes)
    comparison = statistics.Comparison(study, made(MEANS, **columns))
    judged = comparison.judge_claims(comparison.rank_arms())
    assert judged.verdict.tolist() == [verdict]
    assert verdict in statistics.VERDICTS


def test_the_arm_that_is_behind_may_have_found_the_end_of_its_range():
    tables = made(MEANS)
    tables.scores["edges"] = tables.scores.arm.map({"high": "optim.lr"}).fillna("")
    claims = [
        Claim(better="high", than="low", source=""),
        Claim(better="low", than="high", source=""),
    ]
    changes = {"arms": {name: [] for name in MEANS}, "claims": claims, "reference": "low"}
    comparison = statistics.Comparison(STUDY.model_copy(update=changes), tables)
    assert comparison.judge_claims(comparison.rank_arms()).verdict.tolist() == ["better", "worse"]


def test_an_edge_of_two_searches_in_five_is_none():
    tables = made(MEANS)
    is_edge = tables.scores.search < 2
    tables.scores.loc[is_edge, "edges"] = "optim.lr"
    ranking = statistics.Comparison(STUDY.model_copy(update={"reference": "low"}), tables)
    assert not ranking.rank_arms().edges.any()


def test_an_arm_without_its_longest_training_is_still_rising():
    """In one search alone, as where a loss did not stay finite."""
    tables = made(MEANS)
    scores = tables.scores
    is_lost = (scores.arm == "high") & (scores.search == 1) & (scores.epochs == STUDY.epochs[-1])
    tables = tables._replace(scores=scores[~is_lost])
    comparison = statistics.Comparison(STUDY.model_copy(update={"reference": "low"}), tables)
    ranking = comparison.rank_arms().set_index("arm")
    assert ranking.rising.to_dict() == {name: name == "high" for name in MEANS}
    assert np.isnan(ranking.gain["high"])
    assert ranking.gain["low"] == pytest.approx(0.1)
    assert ranking.gain_error["low"] == pytest.approx(0, abs=1e-9)


def test_files_have_the_class_scores_that_are_read(tmp_path):
    tables = made(MEANS, validation=lambda place: 30 + place / 10)
    is_tie = (tables.scores.arm == "low") & (tables.scores.search == 0)
    tables.scores.loc[is_tie, "validation"] = [30.0, 31.0, 31.0000004]  # 31 and 31 in the file
    with_runs(tables).add_to(tmp_path)
    stored = Results.read(tmp_path)
    lengths = stored.classes.groupby(["arm", "search"]).epochs.apply(list)
    assert lengths.pop((IMAGES, 0)) == [0]
    assert lengths.pop(("low", 0)) == STUDY.epochs[1:]
    assert set(map(tuple, lengths)) == {(STUDY.epochs[-1],)}
    assert len(stored.class_scores()) == len(tables.searches())


def test_the_picture_shows_all_scores_and_cuts_the_widest_bar_only(monkeypatch):
    figures = []
    monkeypatch.setattr(pictures, "save_small", lambda figure, path: figures.append(figure))
    columns = {"untrained": 13.0, "rank_low": 1, "rank_high": 4, "failed": False}
    ranking = pd.DataFrame({"arm": list("abcd"), "map_at_r": [20, 19, 18, 5.0], **columns})
    for halves, cut in ([1, 2, 1, 9], True), ([1, 2, 1, 1.5], False):
        pictures.draw_scores(ranking.assign(half=halves), Path("not_written.png"))
        (axis,) = figures.pop().axes
        low, high = axis.get_xlim()
        assert low < 5
        assert high > 21
        assert (low > 5 - halves[-1]) == cut
        assert ("cut at the border" in axis.get_xlabel()) == cut


def series(scores):
    """Scores of arms as `measure_noise` takes them."""
    flat = {}
    for arm, values in scores.items():
        for search, value in enumerate(values):
            flat[arm, search] = float(value)
    return pd.Series(flat).rename_axis(["arm", "search"])


def test_differences_contain_the_variance_of_searches():
    """Against the formula, term by term: both arms pooled, one, and none of them."""
    rng = np.random.default_rng(1)
    images = pd.Series(rng.integers(3, 9, 40))
    share = images / images.sum()
    scores = series({"a": [1, 2, 3], "b": [1, 1.1, 1.2], "c": [5, 6.6, 3.9], "d": [1, 1.2]})
    classes = pd.DataFrame(rng.normal(20, 2, (4, 40)), index=list("abcd"))
    pooled, freedom = (2 * 1 + 2 * 0.01 + 3.686666667 + 0.02) / 7, 7
    pairs = statistics.Pairs(classes, images, statistics.measure_noise(scores))
    for first, second in ("bd", "ad", "ca"):
        gap = classes.loc[first] - classes.loc[second]
        points = (share * gap).sum()
        terms = [(40 / 39 * (share**2 * (gap - points) ** 2).sum(), 39)]
        shared = 0
        for arm in (first, second):
            values = scores[arm]
            own = values.var()
            if own > pooled and len(values) > 2:
                terms.append((own / len(values), len(values) - 1))
            else:
                shared += pooled / len(values)
        if shared:
            terms.append((shared, freedom))
        variance = sum(term for term, _ in terms)
        expected = variance**2 / sum(term**2 / of_term for term, of_term in terms)
        difference = pairs.compare(first, second)
        assert difference.points == pytest.approx(points)
        assert difference.error == pytest.approx(variance**0.5)
        assert difference.freedom == pytest.approx(expected)
        half = stats.t.ppf(0.975, expected) * variance**0.5
        assert difference.interval(0.95) == pytest.approx((points - half, points + half))
        assert difference.p == pytest.approx(2 * stats.t.sf(abs(points) / variance**0.5, expected))


def test_an_unstable_arm_does_not_widen_the_intervals_of_others():
    calm = {name: [1, 1.1, 1.2] for name in "abcdef"}
    noise = statistics.measure_noise(series({**calm, "wild": [1, 3, 5]}))
    assert noise.pooled == pytest.approx(0.01)
    assert noise.freedom == 12
    assert noise.arms.loc["wild", ["variance", "freedom"]].tolist() == [4.0, 2]
    less = statistics.measure_noise(series({**calm, "wild": [1, 1.3, 1.6]}))
    assert less.pooled == pytest.approx((12 * 0.01 + 2 * 0.09) / 14)


def test_a_new_search_is_within_the_interval_of_its_arm():
    noise = statistics.measure_noise(series({"a": [1, 2], "b": [5, 5]}))
    assert noise.pooled == pytest.approx(0.25)
    assert noise.freedom == 2
    assert noise.arms.variance.to_dict() == {"a": 0.25, "b": 0.25}  # two say too little
    expected = stats.t.ppf(0.975, 2) * (0.25 * 1.5) ** 0.5
    assert noise.half_width("b") == pytest.approx(expected)
    with pytest.raises(ValueError, match="no arm has two searches"):
        statistics.measure_noise(series({"a": [1]}))


def test_each_search_chooses_its_length():
    tables = made({"low": 15, "high": 20}, searches=2)
    is_first = (tables.scores.search == 0) & (tables.scores.epochs == STUDY.epochs[0])
    tables.scores.loc[is_first, "validation"] = 50
    chosen = tables.choose_lengths().epochs
    assert set(chosen[:, 0]) == {STUDY.epochs[0]}
    assert set(chosen[:, 1]) == {STUDY.epochs[-1]}
    keys = ["arm", "search", "epochs"]
    expected = tables.classes.set_index(keys).loc[("low", 0, STUDY.epochs[0])]
    row = tables.class_scores().loc[("low", 0)]
    np.testing.assert_array_equal(row[NAMES].astype(float), expected[NAMES].astype(float))


def test_the_page_counts_lengths_and_arms_that_longer_training_harms(tmp_path):
    falls = {"validation": lambda place: 30 - 0.2 * place, "steps": lambda place: 400 * 4**place}
    results = made({"ms": 15, "contrastive": 20}, searches=2, **falls)
    scores = results.scores
    is_second = (scores.arm == "ms") & (scores.search == 1)
    scores.loc[is_second & (scores.epochs == STUDY.epochs[1]), "validation"] = 31
    expected = "3 with 400 steps, 1 with 1,600 steps, 0 with 6,400 steps"
    assert count_lengths(results) == expected
    study = STUDY.model_copy(update={"claims": []})
    write_page(study, with_runs(results), tmp_path, "made")
    page = read_on_one_line(tmp_path / "made.md")
    assert f"best validation score (searches: {expected})" in page
    sentence = "is worse than a shorter one by 0.5 points or more in 1 of 2 arms"
    assert sentence in page, "ms loses 0.8 points in the mean of both searches, contrastive 0.4"
    scores["validation"] = 30
    write_page(study, with_runs(results), tmp_path, "made")
    assert "is worse than a shorter one" not in (tmp_path / "made.md").read_text("utf-8")


def test_labels_of_curves_are_readable_and_below_every_column(monkeypatch):
    """Over one and a half decades, as of fine-tuning, and over three."""
    figures = []
    monkeypatch.setattr(pictures, "save_small", lambda figure, path: figures.append(figure))
    arms = list("abcde")  # the last row has two of three
    for longest in 4800, 100_000:
        steps = [0, 150, 600, longest]
        rows = pd.DataFrame(product(arms, [24], steps), columns=["arm", "epochs", "step"])
        results = Results(*[pd.DataFrame()] * 4)._replace(curves=rows.assign(validation=40.0))
        pictures.draw_curves(results, arms, Path("not_written.png"))
        figure = figures.pop()
        figure.canvas.draw()
        is_labeled = []
        for axis in figure.axes[: len(arms)]:
            labels = [label for label in axis.get_xticklabels(which="both") if label.get_text()]
            shown = [label for label in labels if label.get_visible()]
            is_labeled.append(bool(shown))
            assert all(label.get_text().isdecimal() for label in shown)
            left, right = axis.get_window_extent().intervalx
            boxes = [label.get_window_extent() for label in shown]
            boxes = [box for box in boxes if left < box.x0 < right]
            for box, following in pairwise(boxes):
                assert box.x1 + 5 < following.x0
        assert is_labeled == [False, False, True, True, True]


def test_ranks_of_arms_that_no_test_tells_apart():
    study = STUDY.model_copy(update={"reference": "low"})
    ranking = statistics.Comparison(study, made(MEANS)).rank_arms().set_index("arm")
    ranks = ranking[["rank_low", "rank_high"]].apply(tuple, axis=1).to_dict()
    assert ranks == {"high": (1, 2), "near": (1, 2), "low": (3, 3), "worst": (4, 4)}
    assert statistics.describe_rank(1, 2) == "1–2"
    assert statistics.describe_rank(3, 3) == "3"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reference": "mss"}, "no arm mss"),
        ({"margin": -1}, "margin"),
        ({"arm": {}}, "arm"),
        ({"searches": 1}, "searches"),
        ({"epochs": [10, 10]}, "ascend"),
        ({"epochs": [10, 25]}, "divide"),
        ({"features": ""}, "either features or images"),
        ({"images": "made by hand"}, "either features or images"),
    ],
)
def test_a_contradictory_declaration(tmp_path, change, message):
    file = tmp_path / "declaration.yaml"
    OmegaConf.save({**OmegaConf.to_object(OmegaConf.load(FILE)), **change}, file)
    with pytest.raises(UserError, match=message):
        read_declaration(file)


def test_arms_of_claims_come_first():
    order = list(command.list_searches(STUDY, ["triplet", "ms", "c1"]))
    assert order[:4] == [("ms", 0), ("c1", 0), ("ms", 1), ("c1", 1)]
    assert order[8:] == [("ms", 4), ("c1", 4), *(("triplet", number) for number in range(3))]


SMALL = {
    "search.trials": 2,
    "search.startup": 1,
    "protocol.workers": 1,
    "protocol.steps_per_epoch": 2,
    "data.batch_size": 16,
    "embedder.size": 8,
}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Trains two searches of two arms; returns the study, its features and its tables."""
    folder = tmp_path_factory.mktemp("comparison")
    features = write(folder / "made.npz", classes=24)
    options = [*STUDY.options, *(f"{name}={value}" for name, value in SMALL.items())]
    arms = {name: STUDY.arms[name] for name in ("ms", "mfcont")}
    claims = [Claim(better="mfcont", than="ms", source="a test")]
    changes = {"options": options, "epochs": [2, 4], "evaluations": 2, "arms": arms}
    changes |= {"claims": claims, "claimed_searches": 2, "reference": "ms"}
    study = STUDY.model_copy(update=changes)
    for arm, number in command.list_searches(study, list(arms)):
        place = folder / arm / str(number)
        results = train_search(study, arm, arms[arm], number, features, place)
        results.scores["declared"] = "0000000"
        results.add_to(folder / "tables")
    return study, features, folder / "tables"


def test_tables_hold_every_search_once(small):
    study, _, tables = small
    results = Results.read(tables)
    assert results.searches() == set(product(study.arms, range(2)))
    assert set(results.scores.groupby(["arm", "search", "epochs"]).size()) == {4}  # folds
    assert set(results.trials.groupby(["arm", "search"]).size()) == {2}
    assert len(results.class_scores()) == 4  # of the length that each search prefers
    assert results.scores.groupby("epochs").steps.unique().to_dict() == {2: [4], 4: [8]}
    evaluations = results.curves.groupby(["arm", "search", "epochs"]).step.max()
    assert set(evaluations) == {4, 8}
    assert (results.scores.processor_seconds > 0).all()
    share = results.images() / results.images().sum()
    keys = ["arm", "search", "epochs"]
    classes = results.classes[results.classes.arm != IMAGES].set_index(keys)
    means = (classes[share.index] * share).sum(axis=1)
    expected = results.runs().map_at_r
    np.testing.assert_allclose(means, expected[means.index], atol=1e-4)


def rows_of(tables, arm, number):
    """The results of one search, as its training returns them."""
    parts = {}
    for name, table in Results.read(tables)._asdict().items():
        is_searched = (table.arm == arm) & (table.search == number)
        parts[name] = table[is_searched | (table.arm == IMAGES)]
    parts["scores"] = parts["scores"].assign(features="none")
    return Results(**parts)


def test_features_of_other_images_are_not_trained_on(small, tmp_path, monkeypatch):
    """Also where no table of the new folder says what the features are."""
    study, _, tables = small
    (tmp_path / "published").mkdir()
    (tmp_path / "published" / "small").symlink_to(tables)
    monkeypatch.setattr(command, "PAGES", tmp_path / "published")
    other = write(tmp_path / "other.npz", classes=20)
    options = Namespace(study="small", data=other, minutes=None, commit=False)
    with pytest.raises(UserError, match="not the features of the study: 60 images of 10 test"):
        command._train(study, [("ms", 0)], options, "new", tmp_path / "runs", tmp_path / "new")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--arms ms", "--arms, --minutes and --commit: are for training"),
        ("--commit", "give the data, too"),
        ("missing.npz --arms ms,,msn", "--arms: no ''"),
        ("missing.npz --arms proxy_ancor", "did you mean 'proxy_anchor'?"),
        (f"missing.npz --pages {__file__}", f"--pages: {__file__} is not a folder"),
    ],
)
def test_words_that_have_no_effect_or_name_no_arm(words, message, capsys):
    assert command.main(["heads_emoji", *words.split()]) == 2
    assert message in capsys.readouterr().err


def test_spaces_in_a_list_of_arms():
    options = command._read_options(["heads_emoji", "missing.npz", "--arms", "ms, mfcwms"])
    assert options.arms == ["ms", "mfcwms"]


def test_weights_that_are_missing_are_named_before_the_images_are_read(tmp_path, monkeypatch):
    networks = read_declaration(command.STUDIES / "networks_emoji" / "declaration.yaml")
    monkeypatch.chdir(tmp_path)
    options = Namespace(study="networks_emoji", data=tmp_path, minutes=None, commit=False)
    with pytest.raises(UserError, match=r"57934424.pth is not in this folder; .* pip install"):
        command._train(networks, [("ms", 0)], options, "new", tmp_path / "runs", tmp_path / "new")


def test_rows_of_earlier_versions_of_a_declaration_remain(small):
    _, _, tables = small
    results = Results.read(tables)
    results.scores["features"] = "f"
    command.check_rows(results, ["new", "0000000"], "f", tables)
    with pytest.raises(UserError, match="its rows have declared 0000000, these new"):
        command.check_rows(results, ["new"], "f", tables)


def test_commands_side_by_side_share_the_searches(small, tmp_path, monkeypatch):
    """A search that another command trains is left to it; what it has trained is not repeated."""
    study, features, tables = small
    runs, new = tmp_path / "runs", tmp_path / "tables"
    trained = []

    def train(_study, arm, _options, number, _data, place):
        assert place == runs / arm / str(number)
        trained.append((arm, number))
        if len(trained) == 1:
            rows_of(tables, "mfcont", 0).add_to(new)  # by another command, meanwhile
        return rows_of(tables, arm, number)

    monkeypatch.setattr("studies.comparison.trainings.train_search", train)
    monkeypatch.setattr(command, "identify_data", lambda *_: "none")
    options = Namespace(study="small", data=features, minutes=None, commit=False)
    searches = list(command.list_searches(study, list(study.arms)))
    with try_lock(runs / "ms" / "1.lock"):
        assert not command._train(study, searches, options, "0000000", runs, new)
    assert trained == [("ms", 0), ("mfcont", 1)]
    assert command._train(study, searches, options, "0000000", runs, new)
    assert trained[2:] == [("ms", 1)]
    assert Results.find_searches(new) == set(searches)


def test_two_searches_have_other_seeds(small):
    results = Results.read(small[2])
    first, second = (results.scores[results.scores.search == number] for number in range(2))
    assert not np.allclose(first.untrained, second.untrained)


def test_a_search_repeated_elsewhere_has_equal_rows(small, tmp_path):
    study, features, tables = small
    again = train_search(study, "ms", study.arms["ms"], 1, features, tmp_path)
    again.add_to(tmp_path / "tables")
    again, published = Results.read(tmp_path / "tables"), Results.read(tables)
    for name in ("trials", "classes", "curves"):
        rows = getattr(published, name)
        rows = rows[(rows.arm == "ms") & (rows.search == 1)].dropna(axis=1, how="all")
        repeated = getattr(again, name)
        repeated = repeated[repeated.arm == "ms"][rows.columns]
        pd.testing.assert_frame_equal(repeated.reset_index(drop=True), rows.reset_index(drop=True))


def test_a_training_run_is_repeated_from_the_tables(small, tmp_path):
    """The values of the best trial have all their digits."""
    study, features, tables = small
    published = Results.read(tables)
    trials = published.trials[(published.trials.arm == "ms") & (published.trials.search == 1)]
    best = trials.loc[trials.value.idxmax()].dropna()
    best = best.drop(["arm", "search", "number", "state", "value"])
    options = [f"data.root={features}", *without_search([*study.options, *study.arms["ms"]])]
    options += [f"{name}={value}" for name, value in best.items()]
    options += ["protocol.epochs=4", "protocol.evaluate_every=2", "seed=1000"]
    summary = dml.train([*options, f"outputs={tmp_path}"])
    rows = published.scores.set_index(["arm", "search", "epochs"]).loc[("ms", 1, 4)]
    found = [100 * job["metrics"]["map_at_r"] for job in summary["jobs"]]
    np.testing.assert_allclose(found, rows.sort_values("fold").map_at_r, rtol=1e-5)


def test_the_page(small, tmp_path):
    study, _, tables = small
    write_page(study, Results.read(tables), tmp_path, "heads")
    page = (tmp_path / "heads.md").read_text("utf-8")
    assert "`mfcont` above `ms` (a test)" in page
    assert "*equivalent (±0.75)*" in page
    assert {path.name for path in (tmp_path / "heads").glob("*.png")} == {
        *("scores.png", "differences.png", "claims.png", "curves.png")
    }


def normal_source(rng):
    """Arms whose searches and classes are normal."""
    source = {}
    for name in "abcdef":
        trials = np.array([20.0, *rng.normal(20, 0.3, 15)])
        classes = rng.normal(20, 5, 80) + rng.normal(0, 1, (5, 80))
        source[name] = simulation.SourceArm(trials, classes)
    return source


@pytest.fixture
def few_arms():
    arms = {name: [] for name in list(STUDY.arms)[:8]}
    pairs = [("proxy_anchor", "contrastive"), ("ms", "contrastive"), ("mfcont", "ms")]
    claims = [Claim(better=better, than=than, source="a test") for better, than in pairs]
    return STUDY.model_copy(update={"arms": arms, "claims": claims})


def test_coverage_in_simulated_comparisons(few_arms):
    source = normal_source(np.random.default_rng(0))
    images = np.full(80, 5)
    coverage = simulation.simulate(few_arms, source, images, (0.1, 5), 150)
    for share in (coverage.search, coverage.pair, coverage.claims, coverage.references):
        assert share > 0.91
    assert coverage.equivalent == {0.1: 0.0, 5: 1.0}
    assert coverage.different < 0.07
    equal = simulation.simulate(few_arms, source, images, (5,), 150, are_equal=True)
    assert equal.ranks > 0.93


def test_coverage_with_measured_noise(few_arms):
    """Arms have the noise of their searches in the tables, and two searches the pooled noise."""
    spreads = {"ms": 0.1, "c1": 1.0}
    first, second = (made({arm: 20}, searches=40, spread=spreads[arm]) for arm in spreads)
    tables = with_runs(first).add(with_runs(second))
    source, images = simulation.measured_source(tables)
    rng = np.random.default_rng(0)
    for arm, spread in spreads.items():
        drawn = source[arm].draw_searches(4000, rng) @ images / images.sum()
        assert drawn.std() == pytest.approx(spread, rel=0.25)
        assert abs(drawn.mean()) < 0.1 * spread
    coverage = simulation.simulate(few_arms, source, images, (0.1,), 100)
    assert 0.3 < coverage.noise < 1
    assert coverage.pair > 0.93
    few = tables._replace(scores=tables.scores[tables.scores.search < 2])
    few_source = simulation.measured_source(few)[0]
    assert len({arm.spread for arm in few_source.values()}) == 1
    varied = simulation.vary_noise(few_source, tables)
    ratios = [varied[f"ms {arm}"].spread / few_source["ms"].spread for arm in spreads]
    assert ratios[1] / ratios[0] == pytest.approx(10, rel=0.4)
    assert np.mean(np.square(ratios)) == pytest.approx(1)


@pytest.mark.soak  # minutes
def test_coverage_in_comparisons_made_of_the_first_edition():
    """With searches and arms as they are, which are neither normal nor equally variable."""
    source, images = simulation.read_first_edition()
    coverage = simulation.simulate(STUDY, source, images, [STUDY.margin], 1000)
    assert coverage.search > 0.94
    assert coverage.pair > 0.94
    assert coverage.claims > 0.94
    assert coverage.references > 0.94
    assert coverage.different < 0.05
    assert coverage.equivalent[STUDY.margin] > 0.8
    equal = simulation.simulate(STUDY, source, images, [STUDY.margin], 1000, are_equal=True)
    assert equal.ranks > 0.95


def test_the_expected_score_is_the_mean_of_many_searches():
    rng = np.random.default_rng(0)
    arm = simulation.SourceArm(rng.normal(20, 1, 16), np.zeros((2, 3)))
    searches = arm.draw_searches(20000, rng)
    assert abs(searches.mean()) < 0.02


@pytest.fixture(scope="module")
def of_images(tmp_path_factory):
    """Two searches of two arms on images, with a grid of two learning rates."""
    folder = tmp_path_factory.mktemp("images")
    options = [
        *("data=glyphs", "data.reader.classes=12"),
        *("protocol=validation", "backbone=small_cnn", "backbone.width=4", "device=cpu"),
        *("data.batch_size=16", "protocol.steps_per_epoch=2", "protocol.repeats=1"),
        *("evaluation.keep_embeddings=true", "protocol.workers=1", "search=grid"),
        "+space.optim.lr={choices:[1e-3,1e-2]}",
    ]
    arms = {"contrastive": ["loss=contrastive"], "proxy_anchor": ["loss=proxy_anchor"]}
    changes = {"features": "", "images": "made by a test"}
    changes |= {"options": options, "epochs": [2, 4], "evaluations": 2, "arms": arms, "claims": []}
    study = STUDY.model_copy(update=changes)
    for arm, number in command.list_searches(study, list(arms)):
        place = folder / arm / str(number)
        results = train_search(study, arm, arms[arm], number, folder / "data", place)
        results.scores["declared"] = "0000000"
        results.add_to(folder / "tables")
    return study, folder / "tables"


def test_the_best_trial_of_a_search_has_all_digits_in_files():
    rate = [1 / 3, 2 / 3, 1 / 7, None]
    trials = pd.DataFrame(
        {
            "arm": "ms",
            "search": [0, 0, 1, 1],
            "number": [0, 1, 0, 1],
            "value": [10 / 3, 20 / 3, 40 / 3, 30 / 3],
            "optim.lr": rate,
            "loss.kind": list("abcd"),
        }
    )
    rounded = round_other_trials(trials)
    expected = trials.assign(**{"optim.lr": [0.333333, 2 / 3, 1 / 7, None]})
    pd.testing.assert_frame_equal(rounded, expected, check_exact=True)
    pd.testing.assert_frame_equal(round_other_trials(rounded), rounded, check_exact=True)


def read_on_one_line(page: Path) -> str:
    """Returns the text of a page without its line breaks, which mean nothing in Markdown."""
    return " ".join(page.read_text("utf-8").split())


def test_a_comparison_of_images(of_images, tmp_path):
    study, tables = of_images
    results = Results.read(tables)
    numbers = results.trials.groupby(["arm", "search"]).number.agg(list)
    assert all(found == [0, 1] for found in numbers)
    assert set(results.trials["optim.lr"]) == {1e-3, 1e-2}
    assert set(results.scores.edges) == {"optim.lr"}, "of two choices each is an end"
    assert results.scores.groupby("epochs").steps.unique().to_dict() == {2: [4], 4: [8]}
    write_page(study, results, tmp_path, "networks")
    page = read_on_one_line(tmp_path / "networks.md")
    assert "2 trials of 4 steps, each scored by the validation classes. All values of" in page
    assert "**Each arm has" not in page  # those of claims have more
    assert "images by `made by a test`" in page
    assert "of all" not in page.split("**Search**")[1].split("grid")[0]


def test_a_rank_correlation_with_its_interval():
    """A plain calculation of ρ from ranks, and of the interval of Bonett and Wright (2000)."""
    first, second = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], [2.0, 1.0, 4.0, 3.0, 7.0, 5.0, 6.0]
    squares = sum((a - b) ** 2 for a, b in zip(first, second, strict=True))
    rho = 1 - 6 * squares / (7 * (7**2 - 1))
    error = ((1 + rho**2 / 2) / 4) ** 0.5
    low, high = (np.tanh(np.arctanh(rho) + sign * 1.96 * error) for sign in (-1, 1))
    assert correlate(first, second) == pytest.approx((rho, low, high, 7))
    assert correlate(first, first)[:3] == pytest.approx((1, 1, 1))
    with pytest.raises(ValueError, match="3 pairs"):
        correlate(first[:3], second[:3])


def test_the_interval_of_a_correlation_covers():
    """Of normal pairs with Spearman's ρ 0.79 (Pearson's 0.8), in 95 % of samples."""
    rng = np.random.default_rng(0)
    expected = 6 / np.pi * np.arcsin(0.8 / 2)
    inside = 0
    for _ in range(1000):
        first, other = rng.normal(size=(2, 30))
        found = correlate(first, 0.8 * first + 0.6 * other)
        inside += found.low <= expected <= found.high
    assert 0.92 < inside / 1000 < 0.98


@pytest.fixture
def two_datasets():
    """Two comparisons of five arms; `ms` and `c1` change places."""
    claims = [
        Claim(better="mfcont", than="contrastive", source="holds on both"),
        Claim(better="ms", than="c1", source="holds here alone"),
    ]
    changes = {"claims": claims, "claimed_searches": 5, "searches": 5, "dataset": "one"}
    changes |= {"compared_with": Sibling(study="other", dataset="two", without=["triplet"])}
    study = STUDY.model_copy(update=changes)
    here = {"mfcont": 20, "ms": 18, "contrastive": 15, "c1": 12, "triplet": 30, "arcface": 10}
    there = {"mfcont": 25, "c1": 22, "contrastive": 20, "ms": 16, "triplet": 5, "arcface": 9}
    return study, made(here), made(there)


def test_arms_that_change_places_on_another_dataset(two_datasets):
    study, *tables = two_datasets
    here, there = (statistics.Comparison(study, results) for results in tables)
    found = find_agreement(here, there, ["triplet"])
    assert sorted(found.scores.index) == ["arcface", "c1", "contrastive", "mfcont", "ms"]
    assert found.correlation.rho == pytest.approx(0.6)  # squares of differences of ranks: 8
    assert found.pairs == 10
    assert found.changed == [("contrastive", "c1"), ("ms", "c1"), ("ms", "contrastive")]
    assert len(found.same) == 7
    assert ("mfcont", "ms") in found.same
    columns = ["better", "than", "verdict_here", "verdict_there"]
    assert found.claims[columns].to_numpy().tolist() == [
        ["mfcont", "contrastive", "better", "better"],
        ["ms", "c1", "better", "worse"],
    ]
    assert found.claims.points_here.tolist() == pytest.approx([5, 6], abs=0.5)
    assert found.claims.points_there.tolist() == pytest.approx([5, -6], abs=0.5)
    assert count_shared_verdicts(found) == 1
    assert found.within_here == found.within_there == pytest.approx(1)
    assert found.between == pytest.approx(0.6)
    assert found.without_failed.size == 4, "arcface there is not above the untrained head"
    assert found.same_learned == 3, "arcface is in four of the seven pairs"


def test_the_summary_of_claims_names_those_that_are_decided():
    claims = pd.DataFrame(
        {
            "better": ["ms", "c1", "ms", "pfml"],
            "than": ["c1", "triplet", "triplet", "ms"],
            "verdict": ["unknown", "better", "unknown", "worse"],
        }
    )
    expected = "*better*: `c1` above `triplet`; *worse*: `pfml` above `ms`; *unknown*: 2"
    assert summarize_claims(claims) == expected
    assert summarize_claims(claims[:0]) == ""


def test_names_of_arms_do_not_overlap(two_datasets, monkeypatch):
    study, *tables = two_datasets
    found = find_agreement(*(statistics.Comparison(study, results) for results in tables), [])
    scores = found.scores.assign(here=20.0, there=20.0)
    figures = []
    monkeypatch.setattr(pictures, "save_small", lambda figure, path: figures.append(figure))
    names = list(scores.index)
    pictures.draw_agreement(
        found._replace(scores=scores), "one", "two", names, Path("not_written.png")
    )
    (axis,) = figures[0].axes
    boxes = {text.get_text(): text.get_window_extent() for text in axis.texts}
    assert set(boxes) == set(names) - {"arcface", "triplet"}, "those that failed are left out"
    for first, second in combinations(boxes.values(), 2):
        assert not first.overlaps(second)


def test_arms_that_are_not_finished_on_one_dataset_are_left_out(two_datasets):
    study, first, second = two_datasets
    scores = second.scores[(second.scores.arm != "ms") | (second.scores.search < 4)]
    here = statistics.Comparison(study, first)
    there = statistics.Comparison(study, second._replace(scores=scores))
    found = find_agreement(here, there, ["triplet"])
    assert "ms" not in found.scores.index
    assert not any("ms" in pair for pair in found.same + found.changed)
    assert find_agreement(here, there, ["triplet", "c1"]) is None  # three are left


def with_runs(results):
    """Made results with what a page tells of their runs."""
    columns = ["declared", "revision", "device", "versions"]
    scores = results.scores.assign(**dict.fromkeys(columns, "made"), processor_seconds=1.0)
    searches = scores[["arm", "search"]].drop_duplicates()
    trials = searches.assign(number=0, state="COMPLETE", value=30.0, **{"optim.lr": 0.1})
    curves = scores[["arm", "search", "epochs"]].assign(step=400, validation=30.0)
    return results._replace(scores=scores, trials=trials, curves=curves)


def test_a_long_question_continues_below_the_results():
    sentences = [f"{'X' * 290} (of 3.5 points, Eq. 8)." for _ in range(4)]
    beginning, rest = split_introduction(" ".join(["A question?", *sentences]))
    assert beginning == " ".join(["A question?", *sentences[:2]])
    assert rest == sentences[2:]
    assert split_introduction("Short. And whole.\n") == ("Short. And whole.", [])
    assert split_introduction(f"{'x' * 800}. And short.") == (f"{'x' * 800}.", ["And short."])


def test_a_page_says_how_two_datasets_agree(two_datasets, tmp_path):
    study, first, second = two_datasets
    write_page(study, with_runs(first), tmp_path, "one", statistics.Comparison(study, second))
    page = read_on_one_line(tmp_path / "one.md")
    assert "## One and two" in page
    arms = len(study.arms) - 1
    assert f"the rank correlation of 5 of {arms} arms is 0.60 (" in page
    assert "Claims that are *better* on both, or *worse* on both: 1." in page
    assert f"MAP@R of 5 of {arms} arms with [two](other.md)" in page
    assert "tell 7 apart on both in the same order (3 of them without an arm whose" in page
    assert "whose searches failed), and 3 in opposite orders" in page
    assert "(with one: `contrastive` above `c1`, `ms` above `c1`, `ms` above `con" in page
    row = page.split("| `ms` above `c1` | **worse**<br>")[1]  # with two, then with one
    assert "| **better**<br>" in row.split("## ")[0]
    assert (tmp_path / "one" / "datasets.png").exists()
