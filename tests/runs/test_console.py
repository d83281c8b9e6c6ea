import pytest

from dml.runs.console import console, print_results
from dml.runs.folder.summary import combine_scores


def repeats(*values):
    return [{"repeat": n, "metrics": {"map_at_r": value}} for n, value in enumerate(values)]


@pytest.mark.parametrize(
    ("values", "heading", "cell"),
    [
        ((0.461, 0.464), "(2 repeats)", "46.10, 46.40"),
        # standard deviation 0.2517 percent, times 4.302653 / sqrt(3)
        ((0.460, 0.463, 0.465), "(mean of 3 ± 95 %)", "46.27 ± 0.63"),
    ],
)
def test_below_three_repeats_their_values_stand_in_place_of_an_interval(
    values, heading, cell, monkeypatch
):
    monkeypatch.setattr(console, "_width", 200)  # headings on one line
    results = repeats(*values)
    summary = {
        **dict.fromkeys(("data", "loss", "method", "protocol", "classes_tested"), "x"),
        "selected_by": "map_at_r on test",
        "stand_in": False,
        "embedding_size": 128,
        "untrained": combine_scores(results),
        "metrics": combine_scores(results),
        "jobs": results,
        "concatenated": {
            "embedding_size": 512,
            "metrics": combine_scores(results),
            "repeats": results,
        },
    }
    with console.capture() as shown:
        print_results(summary)
    text = " ".join(shown.get().split())
    assert text.count(cell) == 2  # separated and concatenated
    assert text.count(heading) == 2
