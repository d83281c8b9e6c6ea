"""What a comparison trains and tests, read from a file that is committed before its first run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from omegaconf import OmegaConf
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from dml.core.errors import UserError

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(gt=0)]
Searches = Annotated[int, Field(ge=2)]  # one alone has no variance


class Strict(BaseModel):
    """Refuses unknown names."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Claim(Strict):
    """A statement of a paper: arm `better` scores above arm `than`.

    Attributes:
        source: paper and table.
        requires: column of the scores → its least value in most folds of each search, without
            which arm `better` has not used its mechanism, such as `{stages: 2}`.
    """

    better: str
    than: str
    source: str
    requires: dict[Literal["stages", "best_step"], Positive] = {}


class Sibling(Strict):
    """Another comparison of the same arms, with which the results are compared.

    Attributes:
        study: name of its folder in `studies`.
        dataset: its name in texts.
        without: arms that are left out of the correlation.
    """

    study: str
    dataset: str
    without: list[str] = []


class Declaration(Strict):
    """A comparison: arms with equal searches, and what is tested about them.

    Attributes:
        title: of the page.
        question: first paragraph of the page; a long one continues below the results.
        features: how the file of features is made (a command line); empty: images are trained on.
        images: how the folder of images is made, if no features are trained on.
        options: options of `train.py` of every arm, with the search.
        epochs: lengths of training. A search uses the first; the values that it chooses are
            trained for all of them.
        evaluations: of each training run, whatever its length.
        searches: of an arm, each with seeds of its own.
        claimed_searches: of an arm of which `claims` speak.
        first_seed: of search 0; comparisons of the same arms have others.
        amends: commits of earlier versions of this declaration, whose rows remain.
        arms: name → options of `train.py`.
        claims: what the papers say of two arms.
        reference: arm from which the differences of the ranking are measured.
        margin: largest difference that counts as none, in points of MAP@R; None: no two arms are
            called equivalent.
        plateau: gain of the longest training over the shorter ones on the validation classes, in
            points, from which on an arm has no verdict.
        confidence: of all claims together, and of all differences from the reference.
        rank_level: nominal level of the tests of all pairs.
        compared_with: a comparison of the same arms on another dataset, and `dataset`, the name of
            the one here.
        not_tested: what the comparison leaves out, with the reason.
    """

    title: str
    question: str
    features: str = ""
    images: str = ""
    options: list[str]
    epochs: Annotated[list[Count], Field(min_length=2)]
    evaluations: Count
    searches: Searches
    claimed_searches: Searches
    first_seed: Annotated[int, Field(ge=0)] = 0
    amends: list[str] = []
    arms: dict[str, list[str]]
    claims: list[Claim]
    reference: str
    margin: Positive | None
    plateau: Positive
    confidence: Annotated[float, Field(gt=0.5, lt=1)]
    rank_level: Annotated[float, Field(gt=0, lt=0.5)]
    dataset: str = ""
    compared_with: Sibling | None = None
    not_tested: dict[str, str] = {}

    def claimed(self) -> list[str]:
        """Returns the arms of the claims, each once, in the order of `arms`."""
        named = {arm for claim in self.claims for arm in (claim.better, claim.than)}
        return [arm for arm in self.arms if arm in named]

    def count_searches(self, arm: str) -> int:
        """Returns how many searches an arm has."""
        return self.claimed_searches if arm in self.claimed() else self.searches

    def evaluate_every(self, epochs: int) -> int:
        """Returns the epochs between two evaluations of a training run."""
        return epochs // self.evaluations

    @model_validator(mode="after")
    def _names_are_arms(self) -> Declaration:
        named = {self.reference, *self.claimed()}
        for claim in self.claims:
            named |= {claim.better, claim.than}
        if missing := sorted(named - set(self.arms)):
            raise ValueError(f"no arm {', '.join(missing)}")
        return self

    @model_validator(mode="after")
    def _has_one_kind_of_data(self) -> Declaration:
        if bool(self.features) == bool(self.images):
            raise ValueError("data: give either features or images")
        return self

    @model_validator(mode="after")
    def _has_a_name_for_its_dataset(self) -> Declaration:
        if self.compared_with and not self.dataset:
            raise ValueError("dataset: compared_with needs its name")
        return self

    @model_validator(mode="after")
    def _lengths_ascend(self) -> Declaration:
        if self.epochs != sorted(set(self.epochs)):
            raise ValueError("epochs: lengths must ascend")
        for epochs in self.epochs:
            if epochs % self.evaluations:
                raise ValueError(f"evaluations: {self.evaluations} do not divide {epochs} epochs")
        return self


def read_declaration(path: Path) -> Declaration:
    """Returns the declaration of a comparison.

    Raises:
        UserError: it is incomplete or contradicts itself.
    """
    try:
        return Declaration.model_validate(OmegaConf.to_container(OmegaConf.load(path)))
    except (ValidationError, OSError) as error:
        raise UserError(f"{path}: {error}") from error
