"""Config of a run: schema, checks, constructors, identity, presets, explanations of mistakes."""

from dml.config import resolvers as resolvers  # registers the resolvers of the configs
