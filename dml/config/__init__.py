"""Config of a run: schema, checks, identity, presets, explanations of wrong commands."""
