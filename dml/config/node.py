"""The base class of the config's nodes, and the numbers that their options can be."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from dml.config.conversions import Float, Integer
from dml.config.fields import MAX_PIXELS

# Upper limits far above any use: a typing error must not exhaust the machine or hang.
MAX_REPEATS = 1000
MAX_BATCH_SIZE = 1_000_000

Count = Annotated[Integer, Field(ge=1)]
CountFromZero = Annotated[Integer, Field(ge=0)]
BatchSize = Annotated[Integer, Field(ge=1, le=MAX_BATCH_SIZE)]
Pixels = Annotated[Integer, Field(ge=1, le=MAX_PIXELS)]
NotNegative = Annotated[Float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[Float, Field(gt=0, allow_inf_nan=False)]


class Node(BaseModel):
    """A node of the config; options that it does not list are refused."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _add_missing_nodes(cls, options: Any) -> Any:
        """Adds missing nodes as empty ones, so that an error names each option they lack."""
        if not isinstance(options, dict):
            return options
        missing: dict[str, Any] = {
            name: {}
            for name, field in cls.model_fields.items()
            if _is_node(field.annotation) and options.get(name) is None
        }
        return {**options, **missing}


def _is_node(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Node)
