import numpy as np
import pytest

from dml.data.image_index import ImageIndex
from dml.data.protocol_splits import merge_query_and_gallery
from tests.runs.small_runs import rows


def test_curves_are_in_the_history_and_their_mean_in_the_summary(run_tiny):
    summary, folder = run_tiny(
        "loss=pfml", "loss.proxies_per_class=2", "evaluation.measures=[w2,covering_radius]"
    )
    history = rows(folder)
    assert len(history) == 3
    values = [float(row["w2"]) for row in history]
    assert all(0 < value <= 2 for value in values)
    assert summary["metrics"]["w2"]["mean"] == pytest.approx(sum(values[1:]) / 2)
    best = history[int(summary["best_epoch"][0])]
    assert summary["metrics"]["covering_radius"]["mean"] == float(best["covering_radius"])


def test_the_regularizer_is_logged_at_lambda_zero(run_tiny):
    _, folder = run_tiny("loss=mfcwms", "evaluation.measures=[regularizer]")
    assert all(float(row["regularizer"]) >= 0 for row in rows(folder))


def test_metrics_of_the_best_network(run_tiny):
    names = ["alignment", "uniformity", "utilization", "mrr_at_r"]
    names += ["fnmr_at_fmr_0.01", "fnmr_at_fmr_0.001"]
    asked = f"evaluation.measures=[{','.join(names)}]"
    plain, folder = run_tiny("loss=contrastive", asked, "evaluation.keep_embeddings=true")
    assert (folder / "checkpoints" / "repeat0-fold0" / "test_embeddings.npz").exists()
    values = {name: plain["metrics"][name]["mean"] for name in names}
    assert plain["metrics"]["precision_at_1"]["mean"] <= values["mrr_at_r"] < 1
    assert 0 < values["fnmr_at_fmr_0.01"] <= values["fnmr_at_fmr_0.001"] <= 1
    assert 0 < values["alignment"] < 4
    assert values["uniformity"] < 0
    assert 0 < values["utilization"] < 4
    assert not set(names) & rows(folder)[0].keys()


def test_queries_and_gallery_as_one_set():
    roles = np.array(["train", "query", "gallery", "gallery"])
    index = ImageIndex("x", np.zeros((4, 2, 2, 3), np.uint8), np.array([0, 1, 1, 2]), roles)
    assert merge_query_and_gallery(index).roles.tolist() == ["train", "test", "test", "test"]
    published = merge_query_and_gallery(index)
    assert merge_query_and_gallery(published) is published
