import os

from dml.core.launcher import SWEEP_SIZE, export_sweep_size, read_sweep_size


def test_the_size_of_a_sweep_is_known_while_it_runs():
    assert read_sweep_size() == 1
    with export_sweep_size(6):
        assert read_sweep_size() == 6
    assert SWEEP_SIZE not in os.environ
