"""KevinMusgrave/powerful-benchmarker with its PML: losses, folds, metrics."""

import numpy as np
from exchange import Arrays, answer, names
from powerful_benchmarker.split_managers.mlrc_split_manager import MLRCSplitManager
from pytorch_metric_learning import miners, regularizers  # noqa: F401  known to expressions
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from torch_losses import compute_losses


def compute(inputs: Arrays) -> Arrays:
    """Returns the outputs of all rows."""
    outputs = compute_losses(inputs)
    for count in inputs["counts"].tolist():
        manager = MLRCSplitManager.__new__(MLRCSplitManager)
        manager.num_training_partitions, manager.test_size = 4, 0.5
        trainval, _ = manager.get_trainval_and_test(None, list(range(2 * count)))
        for fold, parts in enumerate(manager.get_kfold_generator(None, trainval)):
            outputs |= {f"folds/{count} {fold} {i}": np.array(part) for i, part in enumerate(parts)}
    for kind in names(inputs, "/queries"):
        x, labels = inputs[f"{kind}/vectors"], inputs[f"{kind}/classes"]
        end = int(inputs[f"{kind}/queries"]) or None
        vectors, classes = ((a[:end], a[end:]) for a in (x, labels))
        calculator = AccuracyCalculator(exclude=("NMI", "AMI"))
        scores = calculator.get_accuracy(*vectors, *classes, end is None)
        outputs[f"metrics/{kind}"] = np.array([scores[name] for name in sorted(scores)])
    return outputs


np.int = int  # NumPy removed it
answer(compute)
