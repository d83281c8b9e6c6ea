"""The pages of comparisons are those of their tables; their numbers are computed once more here.

The computation is from the equations in `studies/comparison/statistics.py`, in plain loops with
scipy, and shares no code with it.
"""

import re
from copy import copy
from functools import cache, partial
from itertools import combinations, product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from scipy import stats

from studies import compare
from studies.comparison.declaration import read_declaration
from studies.comparison.page import write_page
from studies.comparison.results import Results
from studies.comparison.statistics import Comparison
from studies.comparison.table_files import IMAGES

PAGES = Path("docs/results")
STUDIES = sorted(path.parent.name for path in PAGES.glob("*/ranking.csv"))
NUMBER = r"[+−-]?\d+\.\d\d"


def declared(name):
    return read_declaration(Path(f"studies/{name}/declaration.yaml"))


COMPARED = [name for name in STUDIES if declared(name).compared_with]


@cache
def read_tables(name):
    """Scores; class scores by arm, search and epochs; number of images of each class."""
    types = {"arm": str, "edges": str}
    scores = pd.read_csv(PAGES / name / "scores.csv.xz", dtype=types)
    classes, counts = {}, None
    table = pd.read_csv(PAGES / name / "classes.csv.xz", dtype=types)
    for arm, search, epochs, *values in table.itertuples(index=False):
        if arm == IMAGES:
            counts = np.array(values, float)
        else:
            classes.setdefault((arm, search, epochs), np.array(values, float))
    return scores, classes, counts


class Recomputed:
    """Scores, noise and differences of a comparison, from its tables."""

    def __init__(self, name):
        scores, classes, counts = read_tables(name)
        self.share = counts / counts.sum()
        self.lengths = {}  # arm, epochs → mean over searches of the mean over folds
        self.validation = {}  # arm, epochs → score of each search
        for key, runs in scores.groupby(["arm", "epochs"]):
            self.lengths[key] = runs.groupby("search").map_at_r.mean().mean()
            self.validation[key] = runs.groupby("search").validation.mean().to_numpy()
        self.searches, self.classes, self.precision = {}, {}, {}
        self.class_rows = {}  # arm → scores of the classes of each search
        self.used = {}  # arm → stages and step of the tested weights, the least of its searches
        self.edges = (
            scores.groupby(["arm", "search"]).edges.first().fillna("").groupby("arm").agg(list)
        )
        self.untrained = scores.groupby("arm").untrained.mean()
        for arm in scores.arm.unique():
            of_arm = scores[scores.arm == arm]
            points, rows, precisions, used = [], [], [], []
            for search in sorted(of_arm.search.unique()):
                runs = of_arm[of_arm.search == search].groupby("epochs").mean(numeric_only=True)
                length = runs.validation.idxmax()
                points.append(runs.map_at_r[length])
                precisions.append(runs.precision_at_1[length])
                tested = of_arm[(of_arm.search == search) & (of_arm.epochs == length)]
                used.append(tested[["stages", "best_step"]].median())
                rows.append(classes[arm, search, length])
            self.searches[arm], self.class_rows[arm] = points, np.array(rows)
            self.classes[arm] = np.mean(rows, axis=0)
            self.precision[arm] = np.mean(precisions)
            self.used[arm] = pd.DataFrame(used).min()
        self.find_noise()

    def without(self, arm, number):
        """The same without a search: what `difference` needs."""
        rest = copy(self)
        points, rows = self.searches[arm], self.class_rows[arm]
        rest.searches = self.searches | {arm: np.delete(points, number)}
        rest.classes = self.classes | {arm: np.delete(rows, number, axis=0).mean(axis=0)}
        rest.find_noise()
        return rest

    def find_noise(self, pool=None, threshold=10):
        squares = {arm: np.var(y) * len(y) for arm, y in self.searches.items()}
        freedoms = {arm: len(y) - 1 for arm, y in self.searches.items()}
        outliers = set()
        for arm in squares:
            others = sum(squares[other] for other in squares if other != arm)
            others /= max(1, sum(freedoms[other] for other in squares if other != arm))
            if freedoms[arm] >= 2 and squares[arm] / freedoms[arm] > threshold * others > 0:
                outliers.add(arm)
        pooled = [arm for arm in pool or squares if arm not in outliers]
        self.freedom = sum(freedoms[arm] for arm in pooled)
        self.variance = sum(squares[arm] for arm in pooled) / self.freedom
        self.own = {}
        for arm in squares:
            if freedoms[arm] >= 2 and squares[arm] / freedoms[arm] > self.variance:
                self.own[arm] = squares[arm] / freedoms[arm]

    def use_own_variances(self):
        for arm, points in self.searches.items():
            if len(points) > 1:
                self.own[arm] = stats.tvar(points)

    def has_learned(self, arm):
        return self.score(arm)[0] > self.untrained[arm]

    def gains(self, arm, study):
        """Gain of the longest training over the best shorter one in each search."""
        *shorter, longest = (self.validation[arm, n] for n in study.epochs)
        return min((longest - scores for scores in shorter), key=np.mean)

    def is_undecided(self, claim, study):
        """Whether the verdict does not depend on the noise.

        Searches are missing or have failed, a method was not used, scores still rise, or the arm
        behind mostly chose the end of a range.
        """
        pair = claim.better, claim.than
        if any(len(self.searches[arm]) < study.count_searches(arm) for arm in pair):
            return True
        if not all(map(self.has_learned, pair)):
            return True
        if any(self.used[claim.better][name] < least for name, least in claim.requires.items()):
            return True
        if any(self.gains(arm, study).mean() >= study.plateau for arm in pair):
            return True
        behind = min(pair, key=lambda arm: self.score(arm)[0])
        chosen = [option for edges in self.edges[behind] for option in edges.split()]
        half = len(self.searches[behind]) / 2
        return any(chosen.count(option) > half for option in chosen)

    def noise(self, arm):
        if arm in self.own:
            return self.own[arm], len(self.searches[arm]) - 1
        return self.variance, self.freedom

    def score(self, arm):
        """Mean of the searches, and the half-width of the interval of a new one."""
        variance, freedom = self.noise(arm)
        count = len(self.searches[arm])
        half = stats.t.ppf(0.975, freedom) * np.sqrt(variance * (1 + 1 / count))
        return np.mean(self.searches[arm]), half

    def difference(self, first, second):
        """A distribution of Student's t around the difference of two arms."""
        gap = self.classes[first] - self.classes[second]
        points = self.share @ gap
        count = len(gap)
        of_classes = count / (count - 1) * ((self.share * (gap - points)) ** 2).sum()
        terms, pooled = [(of_classes, count - 1)], 0
        for arm in (first, second):
            variance, freedom = self.noise(arm)
            if arm in self.own:
                terms.append((variance / len(self.searches[arm]), freedom))
            else:
                pooled += variance / len(self.searches[arm])
        if pooled:
            terms.append((pooled, self.freedom))
        total = sum(term for term, _ in terms)
        freedom = total**2 / sum(term**2 / freedom for term, freedom in terms)
        return stats.t(freedom, points, np.sqrt(total))

    def p(self, first, second):
        distribution = self.difference(first, second)
        side = distribution.cdf(0)
        return 2 * min(side, 1 - side)

    def different_pairs(self, level):
        """Pairs (better, worse) that Holm's tests of all pairs tell apart."""
        pairs = list(combinations(self.searches, 2))
        p_values = sorted((self.p(*pair), pair) for pair in pairs)
        for place, (p, pair) in enumerate(p_values):
            if p * (len(pairs) - place) >= level:
                return
            low, high = sorted(pair, key=lambda arm: self.score(arm)[0])
            yield high, low

    def ranks(self, level):
        """Arm → best and worst rank that Holm's tests of all pairs leave open."""
        better, worse = dict.fromkeys(self.searches, 0), dict.fromkeys(self.searches, 0)
        for high, low in self.different_pairs(level):
            worse[high] += 1
            better[low] += 1
        count = len(self.searches)
        return {arm: (1 + better[arm], count - worse[arm]) for arm in self.searches}


@pytest.fixture(scope="module", params=STUDIES)
def published(request):
    name = request.param
    return SimpleNamespace(
        name=name,
        study=declared(name),
        tables=Results.read(PAGES / name),
        recomputed=Recomputed(name),
        page=(PAGES / f"{name}.md").read_text("utf-8"),
    )


def numbers(cell):
    return [float(text) for text in re.findall(NUMBER, cell)]


def test_the_ranking_is_that_of_an_independent_computation(published):
    recomputed, study = published.recomputed, published.study
    rows = re.findall(r"^\| `(\w+)` \| (\d+\.\d\d)\s±.*\|$", published.page, re.M)
    assert [arm for arm, _ in rows] == sorted(
        recomputed.searches, key=lambda arm: -recomputed.score(arm)[0]
    )
    each = 1 - (1 - study.confidence) / (len(rows) - 1)
    ranks = recomputed.ranks(study.rank_level)
    for arm, _ in rows:
        (line,) = re.findall(rf"^\| `{arm}` \| [\d.]+\s±.*$", published.page, re.M)
        cells = [cell.strip() for cell in line.split("|")]
        _, _, score, searches, spread, difference, rank, *_ = cells
        assert numbers(score) == pytest.approx(recomputed.score(arm), abs=0.0051)
        assert int(searches) == len(recomputed.searches[arm])
        assert score.endswith("\\*") == (arm in recomputed.own)
        if len(recomputed.searches[arm]) > 1:
            expected = stats.tstd(recomputed.searches[arm])
            assert float(spread) == pytest.approx(expected, abs=0.0051)
        ends = [int(end) for end in re.findall(r"\d+", rank)]
        assert (ends[0], ends[-1]) == ranks[arm]
        if arm != study.reference:
            distribution = recomputed.difference(arm, study.reference)
            expected = [distribution.mean(), *distribution.interval(each)]
            assert numbers(difference) == pytest.approx(expected, abs=0.0051)


def test_scores_of_each_length_are_those_of_the_tables(published):
    lengths, epochs = published.recomputed.lengths, published.study.epochs
    section = published.page.partition("\n## Lengths of training")[2].partition("\n## ")[0]
    for arm in published.recomputed.searches:
        (line,) = re.findall(rf"^\| `{arm}` \| (.*) \|$", section, re.M)
        *scores, gain = line.split(" | ")
        expected = [lengths[arm, n] for n in epochs]
        assert [float(score) for score in scores] == pytest.approx(expected, abs=0.0051)
        gains = published.recomputed.gains(arm, published.study)
        expected = [gains.mean()]
        if len(gains) > 2:
            expected.append(stats.sem(gains))
        assert numbers(gain) == pytest.approx(expected, abs=0.0051)


def test_claims_are_those_of_an_independent_computation(published):
    study, count = published.study, len(published.study.claims)
    for claim in study.claims:
        start = re.escape(f"| `{claim.better}` above `{claim.than}` ({claim.source}) |")
        (line,) = re.findall(rf"^{start}(.*)\|$", published.page, re.M)
        points, interval, p, verdict, *of_lengths, precision = map(str.strip, line.split("|"))
        precisions = published.recomputed.precision
        expected = precisions[claim.better] - precisions[claim.than]
        assert float(precision) == pytest.approx(expected, abs=0.0051)
        distribution = published.recomputed.difference(claim.better, claim.than)
        expected = distribution.interval(1 - (1 - study.confidence) / count)
        assert numbers(points) == pytest.approx([distribution.mean()], abs=0.0051)
        assert numbers(interval) == pytest.approx(expected, abs=0.0051)
        low, high = expected
        (name,) = re.findall(r"^\*\*([a-z ]+)", verdict)
        is_small = study.margin is not None and max(-low, high) < study.margin
        if published.recomputed.is_undecided(claim, study):
            assert name not in ("better", "worse")
        elif is_small:
            assert name in ("equivalent", "unknown")
        else:
            assert (name == "better", name == "worse") == (low > 0, high < 0)
        lengths = published.recomputed.lengths
        gaps = [lengths[claim.better, n] - lengths[claim.than, n] for n in study.epochs]
        assert [float(cell) for cell in of_lengths if cell] == pytest.approx(gaps, abs=0.0051)
        corrected = min(1, count * published.recomputed.p(claim.better, claim.than))
        if p == "<\u00a00.001":
            assert corrected < 0.001
        else:
            assert float(p) == pytest.approx(corrected, abs=0.00051)


def test_verdicts_that_other_estimates_of_the_noise_change(published):
    """Those of the table, and no others."""
    study, printed = published.study, {}
    section = published.page.partition("**How firm the verdicts are.**")[2]
    section = section.partition("\n## ")[0]
    for better, than, cells in re.findall(r"^\| `(\w+)` above `(\w+)` \| (.*) \|$", section, re.M):
        printed[better, than] = cells.split(" | ")
    header = re.search(r"^\| claim \| (.*) \|$", section, re.M)
    titles = header[1].split(" | ") if header else []
    other = Recomputed(published.name)
    learned = list(filter(other.has_learned, other.searches))
    estimates = {
        "own variances": other.use_own_variances,
        "pool of all arms": partial(other.find_noise, threshold=np.inf),
        "pool of the claims' arms": partial(other.find_noise, pool=study.claimed()),
        "pool without failed arms": partial(other.find_noise, pool=learned),
    }
    level = 1 - (1 - study.confidence) / len(study.claims)
    for (better, than), cells in printed.items():
        excluded, cases = 0, 0
        for arm in (better, than):
            for number in range(len(other.searches[arm])):
                rest = published.recomputed.without(arm, number)
                low, high = rest.difference(better, than).interval(level)
                excluded += low * high > 0
                cases += 1
        assert cells[-1] == f"excludes 0 in {excluded} of {cases} cases"
    for title, estimate in estimates.items():
        estimate()
        for claim in study.claims:
            pair = claim.better, claim.than
            interval = other.difference(*pair).interval(level)
            expected = published.recomputed.difference(*pair).interval(level)
            if printed and title not in titles:  # a column that says nothing new
                assert interval == pytest.approx(expected, abs=1e-9)
            elif pair in printed:
                cell = printed[pair][titles.index(title)]
                assert numbers(cell) == pytest.approx(interval, abs=0.0051)
            elif not other.is_undecided(claim, study):
                assert np.prod(np.sign(expected)) == np.prod(np.sign(interval))


@pytest.mark.parametrize("name", COMPARED)
def test_the_agreement_of_two_datasets_is_that_of_an_independent_computation(name):
    study, other = declared(name), declared(declared(name).compared_with.study)
    here, there = Recomputed(name), Recomputed(study.compared_with.study)
    arms = []
    for arm in set(here.searches) - set(study.compared_with.without):
        complete_here = len(here.searches[arm]) == study.count_searches(arm)
        if complete_here and len(there.searches[arm]) == other.count_searches(arm):
            arms.append(arm)
    page = (PAGES / f"{name}.md").read_text("utf-8")
    section = page.partition("**Rank correlation**")[2].partition("\n## ")[0]
    overall, single, pairs = section.replace("\n ", "").split("\n- ")[:3]
    learned = [arm for arm in arms if here.has_learned(arm) and there.has_learned(arm)]
    expected = []
    for group in (arms, learned):
        scores = [[data.score(arm)[0] for arm in group] for data in (here, there)]
        rho, size = stats.spearmanr(*scores).statistic, len(group)
        half = 1.96 * np.sqrt((1 + rho**2 / 2) / (size - 3))
        expected += [rho, np.tanh(np.arctanh(rho) - half), np.tanh(np.arctanh(rho) + half)]
        assert f"{size} arms" in overall
    if len(learned) == len(arms):
        expected = expected[:3]
    assert numbers(overall) == pytest.approx(expected, abs=0.0051)
    columns = {}
    for data in (here, there):
        columns[data] = [[data.searches[arm][number] for arm in arms] for number in range(3)]
    between = list(product(columns[there], columns[here]))
    of_two = [list(combinations(columns[data], 2)) for data in (there, here)]
    expected = [
        np.mean([stats.spearmanr(*pair).statistic for pair in group])
        for group in (between, *of_two)
    ]
    assert numbers(single) == pytest.approx(expected, abs=0.0051)
    of_here, of_there = (
        {pair for pair in data.different_pairs(level) if set(pair) <= set(arms)}
        for data, level in ((here, study.rank_level), (there, other.rank_level))
    )
    reversed_there = {(low, high) for high, low in of_there}
    same, changed = len(of_here & of_there) or "none", len(of_here & reversed_there) or "none"
    assert pairs.startswith(f"**Of {len(arms) * (len(arms) - 1) // 2} pairs of arms**")
    assert f"tell {same} apart on both in the same order" in pairs
    of_learned = sum(set(pair) <= set(learned) for pair in of_here & of_there)
    if of_learned < len(of_here & of_there):
        assert f"({of_learned or 'none'} of them without an arm whose searches failed)" in pairs
    assert f"and {changed} in opposite orders" in pairs


def test_the_error_of_classes_is_that_of_a_bootstrap(published):
    """Of the share of the first term in the standard error of a claim."""
    recomputed, claim = published.recomputed, published.study.claims[0]
    gap = recomputed.classes[claim.better] - recomputed.classes[claim.than]
    drawn = np.random.default_rng(0).integers(len(gap), size=(4000, len(gap)))
    resampled = (gap * recomputed.share)[drawn].sum(1) / recomputed.share[drawn].sum(1)
    comparison = Comparison(published.study, published.tables)
    error = comparison.compare(claim.better, claim.than).error
    of_searches = 0
    for arm in (claim.better, claim.than):
        of_searches += recomputed.noise(arm)[0] / len(recomputed.searches[arm])
    assert np.sqrt(error**2 - of_searches) == pytest.approx(resampled.std(), rel=0.05)


def test_scores_of_classes_average_to_the_scores_of_models(published):
    tables = published.tables
    table = tables.classes.set_index(["arm", "search", "epochs"]).astype(float)
    share = table.loc[IMAGES].iloc[0]
    table = table.drop(IMAGES, level="arm")
    means = tables.scores.groupby(["arm", "search", "epochs"]).map_at_r.mean()
    np.testing.assert_allclose(table @ share / share.sum(), means[table.index], atol=1e-4)
    assert set(table.index.droplevel("epochs")) == tables.searches()


def test_every_search_has_all_trials_folds_and_lengths(published):
    """Apart from lengths whose loss did not stay finite."""
    scores, trials, study = published.tables.scores, published.tables.trials, published.study
    assert scores.groupby(["arm", "search", "epochs"]).size().nunique() == 1
    assert set(scores.epochs) == set(study.epochs)
    assert trials.groupby(["arm", "search"]).size().nunique() == 1
    assert set(scores.arm) == set(trials.arm) <= set(study.arms)
    counts = scores.groupby("arm").search.nunique()
    assert all(counts[arm] <= study.count_searches(arm) for arm in counts.index)


def test_the_page_is_that_of_the_tables(published, tmp_path):
    name, sibling = published.name, None
    if published.study.compared_with:
        other = published.study.compared_with.study
        sibling = Comparison(declared(other), Results.read(PAGES / other))
    notes = compare.read_notes(name)
    write_page(published.study, published.tables, tmp_path, name, sibling, notes=notes)
    assert (tmp_path / f"{name}.md").read_text("utf-8") == published.page
    written, stored = (pd.read_csv(folder / name / "ranking.csv") for folder in (tmp_path, PAGES))
    pd.testing.assert_frame_equal(written, stored, rtol=1e-6)
    pictures = {path.name for path in (tmp_path / name).glob("*.png")}
    assert pictures == {path.name for path in (PAGES / name).glob("*.png")}
    for picture in (tmp_path / name).glob("*.png"):
        with Image.open(picture) as image:
            assert image.mode == "P", f"{picture.name} has no palette: studies.pictures.save_small"
