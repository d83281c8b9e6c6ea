"""A loss of a user among the arms of the study."""

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
from studies.reality_check.declaration import Claim, read_declaration
from studies.reality_check.page import write_page
from studies.reality_check.statistics import describe_rank
from studies.reality_check.trainings import Results, train_arm, without_search

STUDY = "reality_check"
DECLARATION = Path(__file__).with_name("declaration.yaml")
RESULTS = Path(__file__).parents[2] / "docs" / "results" / STUDY
QUICK = ["search.trials=3", "protocol.repeats=2"]


def check_loss(
    features: Path, options: Sequence[str], name: str, quick: bool, outputs: Path
) -> None:
    """Trains a loss as the study does, prints its rank, and writes a page with the pictures.

    Args:
        features: the file that `Declaration.features` makes.
        options: of `train.py`, which choose the loss.
        name: of the loss in tables.
        quick: three trials and two repeats, which are no evidence.
        outputs: run folders and page are written below it.

    Raises:
        UserError: the loss cannot train a network.
    """
    study = read_declaration(DECLARATION)
    if name in study.arms:
        raise UserError(f"--name: {name} is a row of the study; give yours another name")
    published = Results.read(RESULTS)
    _check_counts(features, published)
    output_folder(outputs)  # before minutes of training
    typed = options
    if any(option.startswith("loss._target_=") for option in options):
        options = ["loss=custom", *options]
    tried = [f"data.root={features}"]
    for option in without_search([*study.options, *options]):
        if not option.startswith("protocol."):
            tried.append(option)
    pace = _try_steps(tried, outputs / f"{name}_first", published)
    minutes = pace * _count_steps(published) / 60
    title = f"{name} in the reality check"
    if quick:
        minutes *= 0.3
        title += " (quick: no evidence)"
        study = study.model_copy(update={"options": [*study.options, *QUICK]})
    duration = f"{minutes:.0f} core-minutes (on idle cores)"
    print_plain(f"training {name} takes about {duration}", flush=True)
    results = train_arm(study, name, options, features, outputs / name)
    results.scores["declared"] = "this run"
    merged = published.add(results)
    others = sorted(published.scores.arm.unique())
    claims = [Claim(better=name, than=arm, source="this run") for arm in others]
    changes = {"title": title, "arms": {**study.arms, name: list(options)}, "claims": claims}
    study = study.model_copy(update=changes)
    merged.write(outputs / f"{name}_page")
    command = _command(features, typed, name, quick)
    ranking, judged = write_page(study, merged, outputs, f"{name}_page", command)
    _print_result(name, ranking, judged)
    if quick:
        print("quick: a first look, no evidence")
    print_plain(f"page        {outputs / f'{name}_page.md'}")


def _print_result(name: str, ranking: pd.DataFrame, judged: pd.DataFrame) -> None:
    """Prints the rank of an arm, and its differences from the others (of `write_page`).

    The others are in order of their rank.
    """
    row = ranking.set_index("arm").loc[name]
    print(f"MAP@R {row.map_at_r:.2f}, rank {describe_rank(row)} of {len(ranking)}")
    places = dict(zip(ranking.arm, range(len(ranking)), strict=True))
    judged = judged.sort_values("than", key=lambda arms: arms.map(places))
    print(f"{'points':>6}  {'interval':16}  {'verdict':12}  compared with")
    for claim in judged.itertuples():
        interval = f"{claim.low:+6.2f} to {claim.high:+6.2f}"
        print_plain(f"{claim.points:+6.2f}  {interval}  {claim.verdict:12}  {claim.than}")


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


def _count_steps(published: Results) -> float:
    """Returns what an arm of the study costs with its search, in steps: the median of the arms."""
    scores = published.scores
    arms = scores.groupby("arm")
    seconds_of_a_step = arms.seconds.sum() / arms.steps.sum()
    cost = scores.groupby(["arm", "epochs"]).core_seconds.first().groupby("arm").sum()
    return float((cost / seconds_of_a_step).median())


def _check_counts(features: Path, published: Results) -> None:
    """Raises UserError if other images or classes are tested, before anything is trained."""
    index = read_features(features)
    is_tested = index.roles == "test"
    tested, classes = int(is_tested.sum()), len(set(index.labels[is_tested]))
    expected = published.images()
    if (tested, classes) != (expected.sum(), len(expected)):
        raise UserError(
            f"data: not the features of the study: {tested} images of {classes} test classes; the "
            f"study has {expected.sum()} of {len(expected)}. docs/results/reality_check.md has the "
            f"command that makes them"
        )


def _try_steps(options: Sequence[str], outputs: Path, published: Results) -> float:
    """Trains a hundred steps without a search, and returns the seconds of one.

    A loss that lowers the scores is reported.

    Raises:
        UserError: the weights have not changed, or the features are not those of the study.
            (Training itself refuses a loss that is not finite or has no gradient at all.)
    """
    summary = dml.train([f"outputs={outputs}", *options, "protocol.epochs=1"])
    jobs, images = summary["jobs"], published.images()
    trained = 100 * summary["metrics"]["map_at_r"]["mean"]
    untrained = 100 * summary["untrained"]["map_at_r"]["mean"]
    tested, before = summary["classes_tested"], published.scores.untrained.mean()
    if (
        f"{images.sum()} images of {len(images)} " not in tested
        or abs(untrained / before - 1) > 0.1
    ):
        raise UserError(
            f"data: not the features of the study: {tested}, MAP@R {untrained:.1f} % before "
            f"training; the study has {images.sum()} images of {len(images)} classes, {before:.1f} "
            "%. docs/results/reality_check.md has the command that makes them"
        )
    if trained == untrained:
        raise UserError("loss: no gradient; a hundred steps have not changed the network")
    if trained < untrained:
        print(
            f"warning: after a hundred steps MAP@R is {trained:.1f} %, below {untrained:.1f} % of "
            "the untrained head; is the sign of the loss right, or the learning rate too high?"
        )
    return sum(job["seconds"] for job in jobs) / sum(job["steps"] for job in jobs)
