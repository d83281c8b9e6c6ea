"""Paired tests of a paper's claims on results per seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dml.core.errors import ConfigError
from dml.core.statistics import PairedDifference, holm, paired_difference
from dml.reporting.claims.seed_results import SeedResult

LEVEL = 0.05
FEWER_IS_BETTER = ("steps_to_95",)
Verdict = Literal["holds", "does not hold", "undecided", "not tested"]


@dataclass(frozen=True)
class Claim:
    """A comparison that a paper makes, an entry of `experiment.claims`.

    Attributes:
        text: in one sentence, with the place in the paper.
        arm: that is claimed to be better.
        against: the other arm.
        measures: fields of `SeedResult`, a test for each.
        relative_to: arms whose own results are subtracted first, one for each: what counts is the
            loss by label noise, for example.
    """

    text: str
    arm: str
    against: str
    measures: tuple[str, ...] = ("map_at_r", "recall_at_1")
    relative_to: tuple[str, str] | None = None

    @property
    def short(self) -> str:
        """Both arms in a few words."""
        words = f"{self.arm} over {self.against}"
        if self.relative_to is None:
            return words
        return f"{words}, relative to {' over '.join(self.relative_to)}"

    @property
    def arms(self) -> tuple[str, ...]:
        """All arms that it needs."""
        return (self.arm, self.against, *(self.relative_to or ()))


@dataclass(frozen=True)
class ClaimTest:
    """One test of a claim.

    Attributes:
        measure: what was compared.
        difference: between the claimed arm and the other one; positive is in favor of the claim.
        corrected: p-value corrected by Holm for all tests of the page.
    """

    claim: Claim
    measure: str
    difference: PairedDifference
    corrected: float

    @property
    def digits(self) -> int:
        """Digits after the point that are worth printing: two of scores, none of steps."""
        return 0 if self.measure in FEWER_IS_BETTER else 2

    @property
    def verdict(self) -> Verdict:
        """`holds` and `does not hold` need a significant difference, in one direction each.

        `not tested` means equal results of both arms, seed by seed: they did the same.
        """
        if self.difference.mean == self.difference.std == 0:
            return "not tested"
        if self.corrected > LEVEL:
            return "undecided"
        return "holds" if self.difference.mean > 0 else "does not hold"


def read_claims(entries: Sequence[dict[str, Any]]) -> list[Claim]:
    """Returns the claims in the node `experiment.claims`.

    Raises:
        ConfigError: an entry has other keys than a claim.
    """
    claims = []
    for entry in entries:
        lists = {key: tuple(value) for key, value in entry.items() if isinstance(value, list)}
        try:
            claims.append(Claim(**{**entry, **lists}))
        except TypeError as error:
            raise ConfigError([f"experiment.claims: {error}"]) from error
    return claims


def evaluate_claims(claims: Sequence[Claim], results: Sequence[SeedResult]) -> list[ClaimTest]:
    """Tests the claims whose arms all have results, by seeds that all of them have.

    Two-sided paired t-tests; p-values are corrected for the number of all tests by Holm.
    """
    arms = {result.arm for result in results}
    tests = [
        (claim, measure, _compare(claim, measure, results))
        for claim in claims
        if arms.issuperset(claim.arms)
        for measure in claim.measures
    ]
    corrected = holm([difference.p_value for _, _, difference in tests])
    return [ClaimTest(*test, p) for test, p in zip(tests, corrected, strict=True)]


def _compare(claim: Claim, measure: str, results: Sequence[SeedResult]) -> PairedDifference:
    sign = -1.0 if measure in FEWER_IS_BETTER else 1.0
    values = {
        arm: {one.repeat: sign * getattr(one, measure) for one in results if one.arm == arm}
        for arm in claim.arms
    }
    repeats = sorted(set.intersection(*(set(own) for own in values.values())))
    differences = [values[claim.arm][one] - values[claim.against][one] for one in repeats]
    if claim.relative_to:
        first, second = (values[arm] for arm in claim.relative_to)
        differences = [
            d - (first[one] - second[one]) for d, one in zip(differences, repeats, strict=True)
        ]
    return paired_difference(differences)
