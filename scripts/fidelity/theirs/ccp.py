"""yetigurbuz/ccp-dml (TensorFlow): losses with proxies and batch pairs, k-center, folds, scores."""

import json
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import tensorflow as tf
from exchange import Arrays, answer, names, numbers
from framework import losses, metrics
from framework.configs import default
from framework.datasets.dataset_base import Dataset
from framework.models.base_model import BaseModel
from framework.utilities import proxy_utils


def compute_losses(inputs: Arrays, name: str, key: str) -> Arrays:
    """Returns value and gradients of a loss with three proxies per class and batch pairs."""
    (classes, _, dim), outputs = inputs["pool"].shape, {}
    cfg = default.cfg.clone()
    cfg.loss.ccp.function, cfg.loss.computation_head.lipschitz_cont = name, True
    cfg.loss.ccp.use_representative_proxy, cfg.loss.ccp.min_iterations = False, 0
    head = tf.keras.layers.Activation("linear", name="EmbeddingHead")
    head._embedding_size, x = dim, tf.keras.Input(dim)
    model = BaseModel(inputs=x, outputs=head(x))
    model.num_classes = classes
    (rho,), _ = proxy_utils.makeProxy(model.arch, classes, 3, name="ccp")
    order = np.arange(3 * classes).reshape(classes, 3).T.ravel()  # theirs begins with one of each
    rho.assign(numbers(0, (3 * classes, dim))[order])
    loss = losses.ccp(model, cfg)
    for kind in names(inputs):
        batch = tf.Variable(inputs[f"{kind}/x"], dtype=tf.float32)
        with tf.GradientTape() as tape:
            value = loss.call(tf.constant(inputs[f"{kind}/labels"][:, None], tf.int32), batch)
        slopes = [tf.convert_to_tensor(g).numpy() for g in tape.gradient(value, [batch, rho])]
        parts = enumerate((value.numpy(), slopes[0], slopes[1][order.argsort()]))
        outputs |= {f"{key}/{kind}/{i}": part for i, part in parts}
    return outputs


def compute(inputs: Arrays) -> Arrays:
    """Returns the outputs of all rows."""
    outputs: Arrays = {}
    for name, (_, theirs) in json.loads(str(inputs["comparison"]))["losses"]["losses"].items():
        outputs |= compute_losses(inputs, theirs, f"losses/{name}")
    pool, centers = (tf.constant(inputs[key], tf.float32) for key in ("pool", "centers"))
    picked = proxy_utils.greedyKCenter(pool, centers, 4).numpy()
    outputs["picks/points"] = picked.reshape(4, *pool.shape[::2]).transpose(1, 0, 2)
    for count in inputs["counts"].tolist():
        reader = Dataset.__new__(Dataset)
        reader.num_classes = SimpleNamespace(train=count, train_split=[])
        reader.size = SimpleNamespace(train_split=[])
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "images.txt").write_text("".join(f"{c} {c}\n" for c in range(count)))
            for fold in range(4):
                for i, lines in enumerate(reader._datasetFromText(folder, fold + 1, 4)):
                    classes = [int(line.split()[1]) for line in lines]
                    outputs[f"folds/{count} {fold} {i}"] = np.array(classes)
    for kind in ("all", "query and gallery"):  # a batch of lone classes gives NaN
        x = tf.constant(inputs[f"{kind}/vectors"], tf.float32)
        labels = tf.constant(inputs[f"{kind}/classes"][:, None], tf.int32)
        options = {"normalize_embeddings": True, "lipschitz_cont": True}
        metric = metrics.DMLEval(**options, split_at=int(inputs[f"{kind}/queries"]))
        metric.buildGlobalComputeGraph(len(x), 10)
        outputs[f"metrics/{kind}"] = metric.computeGlobal(x, labels).numpy()[[0, 2, 1]]
    return outputs


answer(compute)
