"""What is taken of Hydra beside its public interface does what Hydra does."""

import pytest


def test_flags_are_parsed_as_by_hydra():
    from argparse import ArgumentError

    from dml.config.hydra_internals import parse_flags

    parse_flags(["-m", "--cfg", "job", "--config-dir=here"])
    with pytest.raises(ArgumentError, match="invalid choice: 'jobs'"):
        parse_flags(["--cfg", "jobs"])


def test_the_target_of_the_basic_sweeper():
    from hydra import compose, initialize_config_dir

    from dml.config.hydra_internals import BASIC_SWEEPER
    from dml.core.installation import CONFIGS

    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        cfg = compose("train", ["hydra/sweeper=basic"], return_hydra_config=True)
    assert cfg.hydra.sweeper._target_ == BASIC_SWEEPER
