"""Experiments as their files describe them."""

from dml.reporting.catalog import experiment_ids, list_cells
from scripts.docs.experiment_index import PAPERS, list_experiments


def test_every_experiment_has_a_paper():
    assert [one.id for one in list_experiments()] == experiment_ids()
    assert {one.paper for one in list_experiments()} == set(PAPERS)


def test_losses_and_methods_are_those_of_the_runs():
    """One experiment with a grid, one with several grids, one with fixed choices."""
    for name in ("mft_table14", "metrix_table3", "pfml_figure5"):
        (one,) = [found for found in list_experiments() if found.id == name]
        cells = list_cells(name)
        for group in ("loss", "method"):
            chosen = {str(cell.config[group].name) for cell in cells}
            uses = {choice for choice in chosen if one.uses(group, choice)}
            assert uses == (chosen - {"plain"} if group == "method" and not uses else chosen)
            assert not one.uses(group, "c1")
