import pytest

from dml.training.stopping import Stopping


def stops_at(stopping, scores, epochs_apart=1.0):
    for number, score in enumerate(scores, start=1):
        epoch = number * epochs_apart
        stopping.update(score, epoch, number)
        if stopping.exhausted(epoch):
            return number
    return None


@pytest.mark.parametrize(
    ("patience", "scores", "expected"),
    [
        (2, [1, 2, 2, 2, 9], 4),  # equal is no improvement; the second in a row stops
        (2, [1, 0, 3, 0, 0], 5),
        (1, [1, 0, 9], 2),
        (None, [1] * 50, None),
        (5, [5, 4, 4, 4, 4, 4.5], 6),
    ],
)
def test_patience_in_evaluations(patience, scores, expected):
    assert stops_at(Stopping(patience), scores) == expected


@pytest.mark.parametrize(
    ("patience", "every", "expected"),
    [
        (9, 2, 6),  # CUB under MLRC: best at epoch 2, stop when epoch − 2 > 9, at epoch 12
        (14, 5, 4),  # Cars: best at 5, stop at 20
        (39, 20, 3),  # SOP: best at 20, stop at 60
        (10, 5, 4),  # best at 5; at 15, ten epochs have passed, which are not more than ten
    ],
)
def test_patience_in_epochs(patience, every, expected):
    assert stops_at(Stopping(patience, "epochs"), [1.0] + [0.5] * 20, every) == expected


@pytest.mark.parametrize("unit", ["evaluations", "epochs"])
@pytest.mark.parametrize("cut", range(1, 8))
def test_a_stopping_that_continues_is_the_whole_one(unit, cut):
    scores = [0.2, 0.5, 0.4, 0.505, 0.6, 0.6, 0.1, 0.2, 0.3]
    whole = Stopping(3, unit, min_delta=0.01)
    ends = []
    for step, score in enumerate(scores):
        if step == cut:
            continued = Stopping(3, unit, min_delta=0.01)
            continued.load_state_dict(whole.state_dict())
        if step >= cut:
            ends.append(
                [continued.update(score, 1.5 * step, step), continued.exhausted(1.5 * step)]
            )
            ends[-1] += [continued.best_score, continued.best_epoch, continued.best_step]
        found = [whole.update(score, 1.5 * step, step), whole.exhausted(1.5 * step)]
        if step >= cut:
            assert ends[-1] == [*found, whole.best_score, whole.best_epoch, whole.best_step]
    assert ends[-1][1:] == [True, 0.6, 6.0, 4]
