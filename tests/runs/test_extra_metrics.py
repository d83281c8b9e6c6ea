import math

import numpy as np
import pytest
import torch
from pytorch_metric_learning.losses import ProxyAnchorLoss, SoftTripleLoss

from dml.data.image_index import ImageIndex
from dml.data.protocol_splits import merge_query_and_gallery
from dml.losses import PotentialFieldLoss
from dml.methods.plain import Plain
from dml.runs.extra_metrics import cluster_agreement, loss_proxies
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


def test_proxies_of_losses_are_ordered_by_class():
    torch.manual_seed(0)
    soft = SoftTripleLoss(3, 4, centers_per_class=2)
    proxies, labels = loss_proxies(Plain(soft))
    assert torch.equal(proxies[3], soft.fc[:, 3])
    assert labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert loss_proxies(Plain(ProxyAnchorLoss(3, 4)))[1].tolist() == [0, 1, 2]
    assert loss_proxies(Plain(PotentialFieldLoss(3, 4, 5)))[0].shape == (15, 4)


def test_queries_and_gallery_as_one_set():
    roles = np.array(["train", "query", "gallery", "gallery"])
    index = ImageIndex("x", np.zeros((4, 2, 2, 3), np.uint8), np.array([0, 1, 1, 2]), roles)
    assert merge_query_and_gallery(index).roles.tolist() == ["train", "test", "test", "test"]
    published = merge_query_and_gallery(index)
    assert merge_query_and_gallery(published) is published


def blobs(centers: torch.Tensor, count: int = 20) -> torch.Tensor:
    noise = torch.randn(len(centers) * count, 2, generator=torch.Generator().manual_seed(0))
    return centers.repeat_interleave(count, dim=0) + 0.01 * noise


def test_the_definition_of_nmi():
    # two clusters of 20; the classes are 30 and 10 of them: 20 | 10 + 10
    points = blobs(torch.tensor([[0.0, 0.0], [9.0, 0.0]]))
    labels = torch.tensor([0] * 30 + [1] * 10)
    shares = {(0, 0): 0.5, (0, 1): 0.25, (1, 1): 0.25}  # class, cluster
    of_class, of_cluster = (0.75, 0.25), (0.5, 0.5)
    shared = sum(p * math.log(p / (of_class[a] * of_cluster[b])) for (a, b), p in shares.items())
    entropy = -sum(p * math.log(p) for p in (*of_class, *of_cluster))
    assert cluster_agreement(points, labels, ["nmi"]) == pytest.approx(
        {"nmi": 2 * shared / entropy}
    )
