"""Config of a run: schema, checks, identity, presets, explanations of wrong commands."""

from dml.config import names as names  # registers the resolvers that configs refer to
from dml.config import timm_values as timm_values
