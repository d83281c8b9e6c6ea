"""What this package uses of Hydra that is not in its public interface, all in one place.

It is imported in the functions, so that `tests/test_private_names.py` can run where Hydra no longer
has it, and name the version.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from hydra.core.override_parser.types import Override
from hydra.core.utils import JobReturn
from omegaconf import DictConfig

# The target of `hydra/sweeper=basic`: a running job knows its sweeper by this path only.
BASIC_SWEEPER = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"


def parse_flags(flags: Sequence[str]) -> Namespace:
    """Returns the parsed flags; `hydra.main` would print its usage and end the process.

    Raises:
        ArgumentError: Hydra does not accept the value of a flag.
    """
    from hydra._internal.utils import get_args_parser

    parser = get_args_parser()
    parser.exit_on_error = False
    parsed, _ = parser.parse_known_args(flags)
    return parsed


def apply_override(override: Override, cfg: DictConfig) -> None:
    """Sets an option of a composed config; `compose` would stop at the first wrong one of several.

    Raises:
        HydraException, OmegaConfBaseException, ValueError, TypeError: the option does not exist, or
            does not take the value.
    """
    from hydra._internal.config_loader_impl import ConfigLoaderImpl

    ConfigLoaderImpl._apply_overrides_to_config([override], cfg)


def job_outcome(job: JobReturn) -> Any:
    """Returns the value or the error of a job; `return_value` would print and raise an error."""
    return job._return_value
