"""billpsomas/Metrix_ICLR22: steps with the contrastive loss that mix embeddings or features."""

import random
from importlib import import_module
from unittest import mock

import numpy as np
import torch
from exchange import LAMBDA, Arrays, answer, fill_network
from net.feature_resnet import Resnet50
from pytorch_metric_learning.distances import LpDistance
from pytorch_metric_learning.losses import ContrastiveLoss
from pytorch_metric_learning.reducers import AvgNonZeroReducer, MultipleReducers

# `train.py` of their repository; this one has a file of that name, too.
train = import_module("train")


def compute(inputs: Arrays) -> Arrays:
    """Returns the outputs of all rows."""
    labels, x, images = (torch.from_numpy(inputs[k]) for k in ("pairs/labels", "pairs/x", "images"))
    network = fill_network(Resnet50(16, False), lambda name: name.removeprefix("model."))
    parts = [LpDistance(), ContrastiveLoss(neg_margin=0.5), mock.Mock(), []]
    parts += [MultipleReducers({f"{kind}_loss": AvgNonZeroReducer()}) for kind in ("pos", "neg")]
    unit = torch.nn.functional.normalize(x.requires_grad_())  # as their networks' output
    embed, _ = train.embed_metrix_contrastive(unit, labels, torch.nn.Identity(), *parts)
    feature, _ = train.feature_metrix_contrastive(images, labels, network, *parts, 2.0)
    weight = network.model.embedding.weight
    results = {"embed/0": embed, "embed/1": x.grad, "feature/0": feature, "feature/1": weight.grad}
    return {key: value.detach().numpy() for key, value in results.items()}


torch.set_default_dtype(torch.float64)
random.randint = lambda low, high: 0  # positive-negative pairs
np.random.beta = lambda alpha, beta: LAMBDA
torch.nn.utils.clip_grad_value_ = mock.Mock()  # at 10, which these gradients do not reach
answer(compute)
