"""What this framework computes from the inputs of a comparison, with the options of its configs."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

from dml.config.check import check
from dml.config.compositions import compose_config
from dml.config.schema import Config
from dml.data.protocol_splits import CLASS_FOLDS
from dml.data.transforms import ToInput, eval_transform, train_transform
from dml.losses.distances import clip_to_ball
from dml.methods.chance_constrained.k_center import pick_k_centers
from dml.models.backbones import TimmBackbone
from dml.models.bn_inception import BNInception
from dml.models.embedder import Embedder
from dml.retrieval import retrieval_metrics
from dml.retrieval.coverage import gather_points
from dml.runs.build import Builder
from scripts.fidelity.exchange import LAMBDA, Arrays, evaluate, fill_network, names, record
from scripts.fidelity.inputs import CLASSES, DIM


class Vectors(nn.Identity):
    """An embedder whose images are their embeddings."""

    features = embed = nn.Identity.forward


class OnBatch(nn.Module):
    """The loss and method of a command as a function of embeddings and labels, float64."""

    def __init__(self, words: str) -> None:
        super().__init__()
        config = check(compose_config(["data=cub", *words.split()]), Config)
        self.method: Any = Builder(config).method(CLASSES, DIM).eval()
        self.normalize = clip_to_ball if "method=ccp" in words else nn.Identity()

    def forward(self, x: Tensor, labels: Tensor) -> Any:
        """Returns the loss of a batch."""
        return self.method(Vectors(), self.normalize(x), labels)[0]


def compute_ours(comparison: dict[str, Any], inputs: Arrays) -> Arrays:
    """Returns our outputs for an entry of comparisons.yaml."""
    outputs: Arrays = {}
    for row, losses in comparison.get("losses", {}).items():
        for name, (words, _) in losses.items():
            with mock.patch("dml.methods.mixing_baselines.draw_lambdas", _constant_lambda):
                outputs |= evaluate(f"{row}/{name}", OnBatch(words), inputs)
    if "splits" in comparison:
        outputs |= _folds_and_metrics(inputs, comparison["splits"])
    further = {"mft": _mft, "metrix": _metrix}.get(comparison["script"])
    return outputs | (further(inputs) if further else {})


def _constant_lambda(pairs: int, *_: Any, like: Tensor) -> Tensor:
    return like.new_full((pairs,), LAMBDA)


def _authors_name(name: str) -> str:
    return name.replace("head.linear", "embedding").split("backbone.")[-1].split("network.")[-1]


def _mft(inputs: Arrays) -> Arrays:
    network = Embedder(BNInception("none", 64), DIM, pooling="avg+max")
    y = fill_network(network, _authors_name)(torch.from_numpy(inputs["images"]))
    layers = ("backbone.conv1_7x7_s2.weight", "head.linear.weight")
    outputs = record("network", y.sin().sum(), *map(network.get_parameter, layers))
    outputs["network/output"] = y.detach().numpy()
    spec = network.input
    to_input = ToInput(spec.mean, spec.std, spec.channel_order, spec.scale)
    train, test = train_transform("random_resized_crop", 224), eval_transform(224, resize=256)
    for i, photo in enumerate(inputs["photos"]):
        for training, crop in ((True, train), (False, test)):
            torch.manual_seed(i)
            pixels = to_input(crop(torch.from_numpy(photo).movedim(2, 0)))
            outputs[f"pixels/{i} {training}"] = pixels.numpy()
    return outputs


def _metrix(inputs: Arrays) -> Arrays:
    labels, x, images = (torch.from_numpy(inputs[k]) for k in ("pairs/labels", "pairs/x", "images"))
    network = Embedder(TimmBackbone("resnet50", "none", 64), DIM, pooling="avg+max")
    weight = fill_network(network, _authors_name).get_parameter("head.linear.weight")
    steps = {"embed": (Vectors(), x.requires_grad_(), x), "feature": (network, images, weight)}
    outputs: Arrays = {}
    for kind, (embedder, given, leaf) in steps.items():
        words = f"loss=contrastive method=metrix method.types=[{kind}] method.pairs=[pos_neg]"
        method = OnBatch(f"{words} experiment.params=metrix").method
        with mock.patch("dml.methods.metrix.metrix.draw_lambdas", _constant_lambda):
            outputs |= record(kind, method(embedder, given, labels)[0], leaf)
    return outputs


def _folds_and_metrics(inputs: Arrays, splits: str) -> Arrays:
    pool, centers = (torch.from_numpy(inputs[key]) for key in ("pool", "centers"))
    outputs = {"picks/points": gather_points(pool, pick_k_centers(pool, centers, 4)).numpy()}
    for count in inputs["counts"].tolist():
        for fold, parts in enumerate(CLASS_FOLDS[splits](count)):
            outputs |= {f"folds/{count} {fold} {i}": np.sort(part) for i, part in enumerate(parts)}
    for kind in names(inputs, "/queries"):
        x, labels = torch.from_numpy(inputs[f"{kind}/vectors"]), inputs[f"{kind}/classes"]
        x = clip_to_ball(x) if splits == "ccp" else x
        end = int(inputs[f"{kind}/queries"]) or len(x)
        gallery = (x[end:], labels[end:]) if end < len(x) else ()
        scores = retrieval_metrics(x[:end], labels[:end], *gallery)
        keys = ("map_at_r", "precision_at_1", "r_precision")
        outputs[f"metrics/{kind}"] = np.array([scores[key] for key in keys])
    return outputs
