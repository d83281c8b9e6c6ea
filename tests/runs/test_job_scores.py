"""No image is embedded twice by the same weights: neither for scores nor for figures."""

from collections import Counter

import numpy as np
import pytest
from PIL import Image

from dml.core.errors import RunStopped
from dml.runs.embeddings import Evaluator
from dml.runs.job_scores import JobScores
from dml.training.stopping import Stopping

HOLDOUT = ("protocol=holdout",)
TEST_CURVE = "evaluation.test_curve=true"
THRESHOLDS = "evaluation.measures=[fnmr_at_fmr_0.01]"
# Times that all test images are embedded: before the training and by the best weights, and at each
# evaluation that scores them.
RUNS = {
    "test images select": (("protocol=traditional",), 2),
    "two epochs": (("protocol=traditional", "protocol.epochs=2"), 3),
    "no epochs": (("protocol=traditional", "protocol.epochs=0"), 1),
    "averaged weights": (("protocol=traditional", "ema=0.5"), 2),
    "validation images select": (HOLDOUT, 2),
    "untrained network alone": ((*HOLDOUT, "protocol.epochs=0"), 1),
    "thresholds of validation images": ((*HOLDOUT, THRESHOLDS), 2),
    "a curve of test images": ((*HOLDOUT, TEST_CURVE), 3),
    "a curve of a point": ((*HOLDOUT, TEST_CURVE, "protocol.epochs=0"), 1),
    "folds": (("protocol=mlrc",), 4 * 2),
    "folds without epochs": (("protocol=mlrc", "protocol.epochs=0"), 4),
    "stages": ((*HOLDOUT, "method=ccp", "loss=contrastive"), 2),
}
TEST_IMAGES = 72  # of `run_small`


@pytest.fixture
def embedded(monkeypatch):
    """Counts passes of images through the network, by the images and the weights."""
    passes, embed = Counter(), Evaluator.embed

    def counted(evaluator, embedder, *more):
        weights = sum(float(part.double().sum()) for part in embedder.state_dict().values())
        for subset in evaluator.split.subsets:
            passes[weights, tuple(subset.rows)] += 1
        return embed(evaluator, embedder, *more)

    monkeypatch.setattr(Evaluator, "embed", counted)
    return passes


def sizes(passes: Counter) -> Counter:
    """Number of images → how often so many were embedded."""
    return Counter(len(rows) for _, rows in passes.elements())


def test_thresholds_are_of_the_best_weights(run_tiny, evaluated, monkeypatch):
    """Of an epoch that is not the last one, and as a later evaluation of the run finds them."""
    monkeypatch.setattr(Stopping, "is_better", lambda self, score: self.best_step == 0)
    summary, folder = run_tiny(*HOLDOUT, THRESHOLDS, "loss=contrastive", "protocol.epochs=4")
    (first,) = summary["best_epoch"]
    assert first < 4
    words = (THRESHOLDS, f"run={folder}")
    later = evaluated(*words, given=("run", "evaluation.measures"))["metrics"]
    names = [name for name in later if name.startswith("fnmr")]
    assert len(names) == 4
    for name in names:
        assert summary["metrics"][name]["mean"] == pytest.approx(later[name], rel=1e-6)


@pytest.mark.parametrize("name", RUNS)
def test_images_are_embedded_once_by_the_same_weights(name, embedded, run_small):
    overrides, times = RUNS[name]
    run_small(*overrides)
    assert set(embedded.values()) == {1}
    assert sizes(embedded)[TEST_IMAGES] == times


@pytest.mark.pictures
@pytest.mark.parametrize("protocol", ["traditional", "holdout"])
def test_figures_show_the_embeddings_that_were_scored(protocol, embedded, run_small):
    folder = run_small(f"protocol={protocol}", THRESHOLDS)
    assert len([*folder.glob("figures/*.png")]) == 4
    assert set(embedded.values()) == {1}
    assert sizes(embedded)[TEST_IMAGES] == 2


@pytest.mark.parametrize("epochs", [0, 1])
def test_queries_and_gallery_are_embedded_once(epochs, embedded, run_tiny, tmp_path):
    random = np.random.default_rng(0)
    for split, classes in (("train", "ab"), ("query", "cd"), ("gallery", "cd")):
        for label in classes:
            (tmp_path / split / label).mkdir(parents=True)
            for number in range(4 if split == "train" else 3 + len(split)):
                pixels = random.integers(0, 256, (12, 12, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / split / label / f"{number}.png")
    words = ("data=folder", f"data.root={tmp_path}", "protocol=traditional", "backbone=small_cnn")
    run_tiny(*words, "transform.size=12", "data.batch_size=4", f"protocol.epochs={epochs}")
    assert set(embedded.values()) == {1}
    assert sizes(embedded) == {2 * (3 + 5): 1 + epochs, 2 * (3 + 7): 1 + epochs}


@pytest.mark.parametrize("protocol", ["traditional", "holdout"])
@pytest.mark.parametrize("draws", [False, True])
def test_a_run_that_continues_after_its_last_epoch(
    protocol, draws, embedded, run_small, monkeypatch
):
    """Its evaluations are over: the best weights remain, and the first ones for figures."""

    def stop(scores, rows, best):
        raise RunStopped("stopped", 143)

    with monkeypatch.context() as patch:
        patch.setattr(JobScores, "score_test", stop)
        with pytest.raises(RunStopped):
            run_small(f"protocol={protocol}")
    embedded.clear()
    run_small(f"protocol={protocol}")
    assert set(embedded.values()) == {1}
    assert sizes(embedded) == {TEST_IMAGES: 2}
