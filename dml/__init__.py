"""Deep metric learning, compared fairly: losses, methods, protocols and retrieval evaluation."""

from typing import Any


def __getattr__(name: str) -> Any:
    # Late: `import dml` alone, which every command does, must not wait for torch.
    if name == "load":
        from dml.runs.load import load

        return load
    if name == "train":
        from dml.runs.train_function import train

        return train
    raise AttributeError(f"module 'dml' has no attribute '{name}'")
