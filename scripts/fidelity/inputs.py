"""The inputs of a comparison: random batches, images, photographs, and vectors to rank."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_sample_images

from scripts.fidelity.exchange import Arrays

CLASSES, DIM = 9, 16


def make_inputs(kinds: list[str] | None) -> Arrays:
    """Returns the inputs, in float64, with all batches or those of the given kinds."""
    rng = np.random.default_rng(0)
    labels = {
        "balanced": np.repeat(rng.permutation(CLASSES)[:6], 4),
        "random": rng.integers(0, CLASSES, 24),
        "one class": np.full(6, 2),
        "distinct": rng.permutation(CLASSES),
        "pairs": np.repeat(np.arange(8), 2),
        "long": rng.integers(0, CLASSES, 24),
    }
    inputs: Arrays = {"counts": np.array([98, 100, 3_997, 11_318])}
    for kind in kinds or labels:
        x = rng.standard_normal((len(labels[kind]), DIM))
        # pairs are close together, so that all hinges of Metrix are active
        x = {"pairs": 1 + x / 10, "long": 30 * x}.get(kind, x)
        inputs |= {f"{kind}/x": x, f"{kind}/labels": labels[kind]}
    inputs["images"] = rng.standard_normal((16, 3, 64, 64))
    inputs["photos"] = np.stack(load_sample_images().images)
    shapes = {
        "proxies": (CLASSES, 3, DIM),
        "pool": (CLASSES, 12, DIM),
        "centers": (CLASSES, 4, DIM),
    }
    inputs |= {name: rng.standard_normal(shape) / 3 for name, shape in shapes.items()}
    for kind, queries, lone in (("all", 0, 0), ("query and gallery", 40, 0), ("lone", 0, 5)):
        classes = np.concatenate([rng.integers(0, 12, 120), np.arange(100, 100 + lone)])
        lengths = rng.uniform(0.1, 0.5, (len(classes), 1))
        inputs |= {f"{kind}/vectors": lengths * rng.standard_normal((len(classes), DIM))}
        inputs |= {f"{kind}/classes": classes, f"{kind}/queries": np.array(queries)}
    return inputs
