from dml.runs.console import console, print_results


def score(mean):
    return {"mean": mean, "ci95": None, "repeats": 1}


def test_a_score_of_the_finished_network_alone():
    untrained = {"map_at_r": score(0.1)}
    summary = {
        "data": "digits",
        "loss": "ms",
        "method": "metrix",
        "protocol": "traditional",
        "stand_in": False,
        "classes_tested": "8 images of 2 unseen classes",
        "selected_by": "map_at_r on test",
        "untrained": untrained,
        "metrics": {"map_at_r": score(0.3), "nmi": score(0.5)},
        "concatenated": None,
    }
    with console.capture() as shown:
        print_results(summary)
    assert "digits: ms + metrix (traditional)" in shown.get()
    rows = [line.split() for line in shown.get().splitlines()]
    assert ["│", "NMI", "│", "–", "│", "50.00", "│"] in rows
