"""A loss of a user among the arms of a comparison."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

import dml
from dml.core.atomic_io import output_folder
from dml.core.errors import UserError
from dml.core.plain_text import print_plain
from dml.data.readers.features import read_features
from studies.comparison.declaration import Claim, Declaration, read_declaration
from studies.comparison.page import write_page
from studies.comparison.results import Results
from studies.comparison.statistics import describe_rank
from studies.comparison.trainings import train_search, without_search

STUDY = "heads_emoji"
DECLARATION = Path(__file__).parents[1] / STUDY / "declaration.yaml"
RESULTS = Path(__file__).parents[2] / "docs" / "results" / STUDY
SEARCHES = 2  # of the user's loss
QUICK_TRIALS = 3
FIRST_STEPS = 100  # of a training that finds mistakes before the search


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
    study, published = read_declaration(DECLARATION), Results.read(RESULTS)
    if name in study.arms:
        raise UserError(f"--name: {name} is a row of the study; give yours another name")
    _check_counts(features, published)
    output_folder(outputs)  # before minutes of training
    typed, searches = options, SEARCHES
    if any(option.startswith("loss._target_=") for option in options):
        options = ["loss=custom", *options]
    title = f"{name} among {study.title[0].lower()}{study.title[1:]}"
    if quick:
        searches = 1
        title += " (quick: no evidence)"
        trials = [*study.options, f"search.trials={QUICK_TRIALS}"]
        study = study.model_copy(update={"options": trials})
    pace = _try_steps(study, options, features, outputs / f"{name}_first", published)
    steps = searches * count_steps(published, QUICK_TRIALS if quick else None)
    duration = f"{pace * steps / 60:.0f} core-minutes (on idle cores)"
    print_plain(f"training {name} takes about {duration}", flush=True)
    merged = published
    for number in range(searches):
        place = outputs / name / str(number)
        results = train_search(study, name, options, number, features, place)
        results.scores["declared"] = "this run"
        merged = merged.add(results)
    study = _add_arm(study, published, name, options, title, searches)
    merged.write(outputs / f"{name}_page")
    command = _command(features, typed, name, quick)
    ranking, judged = write_page(study, merged, outputs, f"{name}_page", checked_loss=command)
    _print_result(name, ranking, judged)
    if quick:
        print("quick: a first look, no evidence")
    print_plain(f"page        {outputs / f'{name}_page.md'}")


def _add_arm(
    study: Declaration,
    published: Results,
    name: str,
    options: Sequence[str],
    title: str,
    searches: int,
) -> Declaration:
    """Returns a declaration with another arm, which is compared with each of the others."""
    others = sorted(published.scores.arm.unique())
    claims = [Claim(better=name, than=arm, source="this run") for arm in others]
    changes = {
        "title": title,
        "arms": {**study.arms, name: list(options)},
        "claims": claims,
        "searches": searches,
        "claimed_searches": searches,
    }
    return study.model_copy(update=changes)


def _print_result(name: str, ranking: pd.DataFrame, judged: pd.DataFrame) -> None:
    """Prints the rank of an arm, and its differences from the others, in order of their rank."""
    row = ranking.set_index("arm").loc[name]
    ranks = describe_rank(row.rank_low, row.rank_high)
    print(f"MAP@R {row.map_at_r:.2f} ± {row.half:.2f}, rank {ranks} of {len(ranking)}")
    places = dict(zip(ranking.arm, range(len(ranking)), strict=True))
    judged = judged.sort_values("than", key=lambda arms: arms.map(places))
    print(f"{'points':>6}  {'interval':16}  {'verdict':13}  compared with")
    for claim in judged.itertuples():
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


def _check_counts(features: Path, published: Results) -> None:
    """Raises UserError if other images or classes are tested, before anything is trained."""
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

    A loss that lowers the scores is reported.

    Raises:
        UserError: the weights have not changed, or the features are not those of the study.
            (Training itself refuses a loss that is not finite or has no gradient at all.)
    """
    tried = [f"outputs={outputs}", f"data.root={features}", "protocol.epochs=1"]
    for option in without_search([*study.options, *options]):
        if not option.startswith("protocol."):
            tried.append(option)
    tried.append(f"protocol.steps_per_epoch={FIRST_STEPS}")
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
    if trained < untrained:
        print(
            f"warning: after a hundred steps MAP@R is {trained:.1f} %, below {untrained:.1f} % of "
            "the untrained head; is the sign of the loss right, or the learning rate too high?"
        )
    return sum(job["seconds"] for job in jobs) / sum(job["steps"] for job in jobs)
