"""What a study trains and tests, read from a file that is committed before its first run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from omegaconf import OmegaConf
from pydantic import Field, ValidationError, model_validator

from dml.core.errors import UserError
from studies.comparison.declaration import Positive, Strict


class Claim(Strict):
    """A statement of a paper: arm `better` scores above arm `than`.

    Attributes:
        source: paper and table.
        requires: column of the scores → its least mean, without which arm `better` has not used
            its mechanism, such as `{stages: 2}`.
    """

    better: str
    than: str
    source: str
    requires: dict[Literal["stages", "steps"], Positive] = Field(default_factory=dict)


class Declaration(Strict):
    """A study: arms with equal searches, and what is tested about them.

    Attributes:
        title: of the page.
        question: first paragraph of the page.
        features: how the file of features is made (a command line); None: networks are fine-tuned
            on images.
        options: options of `train.py` of every arm, with search and repeats.
        epochs: lengths of training runs. The search uses the first; its best values are trained
            for all of them.
        arms: name → options of `train.py`.
        claims: what the papers say of two arms.
        same: two arms that differ in their seeds only (A/A).
        reference: arm from which the intervals of the ranking are measured.
        margin: largest difference that counts as none, in points of MAP@R.
        learned: points over the score before training that an arm needs.
        plateau: relative gain of the longest training over a shorter one on the validation
            classes, from which on an arm is marked as still rising.
        confidence: of all claims, and of all pairs of the ranking, together.
        not_tested: arms that the study leaves out, with the reason.
    """

    title: str
    question: str
    features: str | None = None
    options: list[str]
    epochs: Annotated[list[Annotated[int, Field(gt=0)]], Field(min_length=2)]
    arms: dict[str, list[str]]
    claims: list[Claim]
    same: tuple[str, str]
    reference: str
    margin: Positive
    learned: Positive
    plateau: Positive
    confidence: Annotated[float, Field(gt=0.5, lt=1)]
    not_tested: dict[str, str] = Field(default_factory=dict)

    def claimed(self) -> list[str]:
        """Returns the arms of the claims."""
        return [arm for claim in self.claims for arm in (claim.better, claim.than)]

    @model_validator(mode="after")
    def _names_are_arms(self) -> Declaration:
        named = {self.reference, *self.same, *self.claimed()}
        if missing := sorted(named - set(self.arms)):
            raise ValueError(f"no arm {', '.join(missing)}")
        return self


def read_declaration(path: Path) -> Declaration:
    """Returns the declaration of a study.

    Raises:
        UserError: it is incomplete or contradicts itself.
    """
    try:
        return Declaration.model_validate(OmegaConf.to_container(OmegaConf.load(path)))
    except (ValidationError, OSError) as error:
        raise UserError(f"{path}: {error}") from error
