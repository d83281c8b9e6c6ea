"""Options that follow from others, such as the normalization of images from `backbone.model`."""

from __future__ import annotations

from dml.config.check import change
from dml.config.identity import flatten
from dml.config.options import is_below
from dml.config.schema import Config
from dml.config.search_space import merge_spaces
from dml.core.errors import ConfigError

MOST_CHOICES = 20  # that are tried of an option


def find_derived(config: Config) -> dict[str, list[str]]:
    """Returns the options that follow from searched ones: searched option → their names.

    They are found by the ends of each range, and by all of a few choices.
    """
    usual = flatten(config.plain)
    is_grid = config.search is not None and config.search.sampler == "grid"
    derived = {}
    for name, space in merge_spaces(config.space, is_grid).items():
        values = space.get("choices") or [space["low"], space["high"]]
        changed: set[str] = set()
        for value in values[:MOST_CHOICES]:
            try:
                options = flatten(change(config, {name: value}).plain)
            except ConfigError:  # of a value that needs others
                continue
            changed.update(other for other in usual if options.get(other) != usual[other])
        of_others = sorted(other for other in changed if not is_below(other, [name]))
        if of_others:
            derived[name] = of_others
    return derived
