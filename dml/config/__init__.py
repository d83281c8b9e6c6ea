"""Config of a run: schema, checks, identity, presets, explanations of wrong commands."""

from dml.config import resolvers as resolvers  # registers the resolvers of the configs
