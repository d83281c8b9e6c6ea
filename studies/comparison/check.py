"""A loss of a user among the arms of a comparison."""

from __future__ import annotations

import io
import shlex
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path

import pandas as pd

import dml
from dml.core.atomic_io import check_writable, write_text
from dml.core.errors import UserError
from dml.core.plain_text import print_plain
from dml.data.readers.features import read_features
from studies.comparison import page_tables
from studies.comparison.declaration import Claim, Declaration, read_declaration
from studies.comparison.page import render
from studies.comparison.pictures import draw_claims, draw_curves, draw_scores
from studies.comparison.results import Results
from studies.comparison.statistics import Comparison, describe_rank
from studies.comparison.trainings import train_search, without_search

STUDY = "heads_emoji"
DECLARATION = Path(__file__).parents[1] / STUDY / "declaration.yaml"
RESULTS = Path(__file__).parents[2] / "docs" / "results" / STUDY
SEARCHES = 2  # of the user's loss
QUICK_TRIALS = 3
FIRST_STEPS = 100  # of a training that finds mistakes before the search


class CheckedStudy(Declaration):
    """A comparison with another arm, which is compared with each of the others.

    Attributes:
        checked: name of that arm.
        checked_searches: its number of searches.
        published: the declaration of the others.
    """

    checked: str
    checked_searches: int
    published: Declaration

    def claimed(self) -> list[str]:
        """Returns the arms of the published claims."""
        return self.published.claimed()

    def count_searches(self, arm: str) -> int:
        """Returns how many searches an arm has."""
        if arm == self.checked:
            return self.checked_searches
        return self.published.count_searches(arm)


def list_titles(name: str) -> tuple[str, str]:
    """Returns the titles that the page of a loss may have: of a full check, and of a quick one."""
    title = read_declaration(DECLARATION).title
    full = f"{name} among {title[0].lower()}{title[1:]}"
    return full, f"{full} (quick: no evidence)"


def check_loss(
    features: Path, options: Sequence[str], name: str, quick: bool, outputs: Path
) -> None:
    """Trains a loss as the comparison does, prints its rank, and writes a page with the pictures.

    Args:
        features: the file that `Declaration.features` makes.
        options: of `train.py`, which choose the loss.
        name: of the loss in tables.
        quick: one search of three trials, which is no evidence.
        outputs: run folders and page are written below it.

    Raises:
        UserError: the loss cannot train a network.
    """
    published, tables = read_declaration(DECLARATION), Results.read(RESULTS)
    if name in published.arms:
        raise UserError(f"--name: {name} is a row of the study; give yours another name")
    if not features.exists():
        raise UserError(
            f"features: {features} does not exist; make features.npz makes the features"
        )
    check_counts(features, tables)
    check_writable(outputs, "--outputs", "give another folder")
    command = _command(features, options, name, quick)
    searches, trials = SEARCHES, None
    if any(option.startswith("loss._target_=") for option in options):
        options = ["loss=custom", *options]
    if quick:
        searches, trials = 1, QUICK_TRIALS
        options = [*options, f"search.trials={trials}"]
    print_plain(f"first, {FIRST_STEPS} steps without a search, which show mistakes", flush=True)
    pace = _try_steps(published, options, features, outputs / f"{name}_first", tables)
    minutes = pace * searches * count_steps(tables, trials) / 60
    begun = ""
    if (outputs / name).exists():
        begun = ", less what an earlier command did"
    print_plain(
        f"training {name} takes about {minutes:.0f} core-minutes (on idle cores){begun}", flush=True
    )
    for number in range(searches):
        place = outputs / name / str(number)
        results = train_search(published, name, options, number, features, place)
        results.scores["declared"] = "this run"
        tables = tables.add(results)
    study = _add_arm(published, tables, name, options, searches)
    tables.write(outputs / f"{name}_page")
    _conclude(study, tables, outputs, command, quick)


def _add_arm(
    published: Declaration, tables: Results, name: str, options: Sequence[str], searches: int
) -> CheckedStudy:
    claims = []
    for arm in published.arms:
        if arm in set(tables.scores.arm):
            claims.append(Claim(better=name, than=arm, source="this run"))
    fields = dict(published)
    fields |= {"arms": {**published.arms, name: list(options)}, "claims": claims}
    return CheckedStudy(**fields, checked=name, checked_searches=searches, published=published)


def _conclude(
    study: CheckedStudy, results: Results, outputs: Path, command: str, quick: bool
) -> None:
    """Prints the rank of the checked arm, and writes its page.

    Args:
        study: with the arm.
        results: of all arms.
        outputs: folder of the page.
        command: that repeats the row.
        quick: whether it is no evidence.
    """
    name, comparison = study.checked, Comparison(study, results)
    ranking = comparison.rank_arms()
    claims = comparison.judge_claims(ranking)
    places = dict(zip(ranking.arm, range(len(ranking)), strict=True))
    claims = claims.sort_values("than", key=lambda arms: arms.map(places))
    pictures = outputs / f"{name}_page"
    draw_scores(ranking, pictures / "scores.png", highlighted=name)
    draw_claims(study, claims, pictures / "claims.png")
    draw_curves(results, list(ranking.arm), pictures / "curves.png")
    row = results.scores[results.scores.arm == name].iloc[0]
    of_others = results.trials[results.trials.arm != name]
    missing = len(study.arms) - len(ranking)
    page = render(
        "check.md.jinja",
        title=list_titles(name)[quick],
        name=name,
        study=study,
        published=STUDY,
        command=command,
        quick=quick,
        trials=QUICK_TRIALS,
        others_trials=of_others.groupby(["arm", "search"]).size().max(),
        device=row.device,
        missing=missing,
        arms=len(study.published.arms),
        ranking_table=page_tables.ranking_table(study, ranking),
        claims_table=page_tables.claims_table(claims, ranking, results),
        lengths_table=page_tables.lengths_table(ranking, results),
        chosen=page_tables.chosen_values(results.trials[results.trials.arm == name]),
    )
    path = outputs / f"{name}_page.md"
    write_text(path, page)
    _print_result(name, ranking, claims)
    if missing:
        print(f"{missing} arms of the comparison have no search yet: ranks will change")
    if quick:
        print("quick: a first look, no evidence")
    print_plain(f"page        {path}")


def _print_result(name: str, ranking: pd.DataFrame, claims: pd.DataFrame) -> None:
    """Prints the rank of an arm, and its differences from the others."""
    row = ranking.set_index("arm").loc[name]
    ranks = describe_rank(row.rank_low, row.rank_high)
    score = f"MAP@R {row.map_at_r:.2f} ± {row.half:.2f} (separated)"
    print(f"{score}, rank {ranks} of {len(ranking)}")
    print(f"{'points':>6}  {'interval':16}  {'verdict':13}  compared with")
    for claim in claims.itertuples():
        interval = f"{claim.low:+6.2f} to {claim.high:+6.2f}"
        print_plain(f"{claim.points:+6.2f}  {interval}  {claim.verdict:13}  {claim.than}")


def _command(features: Path, options: Sequence[str], name: str, quick: bool) -> str:
    words = ["python", "studies/check_loss.py", str(features), *options, "--name", name]
    if quick:
        words.append("--quick")
    return shlex.join(words)


def name_loss(options: Sequence[str]) -> str:
    """Returns the name of a loss in options of `train.py`, for its row: the class or the config."""
    values = dict(option.partition("=")[::2] for option in options)
    target = values.get("loss._target_", "")
    return target.rpartition(".")[2] or values.get("loss", "") or "yours"


def count_steps(published: Results, trials: int | None = None) -> int:
    """Returns the steps of a search with its training runs.

    Args:
        published: the tables of a finished search.
        trials: of the search; None: as many as there.
    """
    lengths = published.scores.groupby("epochs").steps.max()
    if trials is None:
        trials = published.trials.groupby(["arm", "search"]).size().max()
    folds = published.scores.fold.nunique()
    return int(folds * (trials * lengths.iloc[0] + lengths.sum()))


def check_counts(features: Path, published: Results) -> None:
    """Checks that stored features are of the images that a comparison tests.

    Raises:
        UserError: other images or classes are tested.
    """
    index = read_features(features)
    is_tested = index.roles == "test"
    tested, classes = int(is_tested.sum()), len(set(index.labels[is_tested]))
    expected = published.images()
    if (tested, classes) != (expected.sum(), len(expected)):
        raise UserError(
            f"data: not the features of the study: {tested} images of {classes} test classes; the "
            f"study has {expected.sum()} of {len(expected)}. docs/results/{STUDY}.md has the "
            f"command that makes them"
        )


def _try_steps(
    study: Declaration, options: Sequence[str], features: Path, outputs: Path, published: Results
) -> float:
    """Trains a hundred steps without a search, and returns the seconds of one.

    It prints the scores before and after, not what training prints: these are no results.

    Raises:
        UserError: the weights have not changed, or the features are not those of the study.
            (Training itself refuses a loss that is not finite or has no gradient at all.)
    """
    tried = [f"outputs={outputs}", f"data.root={features}", "protocol.epochs=1"]
    for option in without_search([*study.options, *options]):
        if not option.startswith("protocol."):
            tried.append(option)
    tried.append(f"protocol.steps_per_epoch={FIRST_STEPS}")
    with redirect_stdout(io.StringIO()):
        summary = dml.train(tried)
    jobs, images = summary["jobs"], published.images()
    trained = 100 * summary["metrics"]["map_at_r"]["mean"]
    untrained = 100 * summary["untrained"]["map_at_r"]["mean"]
    tested, before = summary["classes_tested"], published.scores.untrained.mean()
    has_other_images = f"{images.sum()} images of {len(images)} " not in tested
    if has_other_images or abs(untrained / before - 1) > 0.1:
        raise UserError(
            f"data: not the features of the study: {tested}, MAP@R {untrained:.1f} % before "
            f"training; the study has {images.sum()} images of {len(images)} classes, {before:.1f} "
            f"%. docs/results/{STUDY}.md has the command that makes them"
        )
    if trained == untrained:
        raise UserError("loss: no gradient; a hundred steps have not changed the network")
    print(f"MAP@R {trained:.1f} % after {FIRST_STEPS} steps, {untrained:.1f} % before")
    if trained < untrained:
        print(
            "warning: training lowers MAP@R; is the sign of the loss right, or the learning rate "
            "too high?"
        )
    return sum(job["seconds"] for job in jobs) / sum(job["steps"] for job in jobs)
