"""Deep metric learning, compared fairly: losses, methods, protocols and retrieval evaluation."""

from typing import Any

FOR_USERS = {
    "load": "dml.runs.load",
    "load_all": "dml.runs.load",
    "export": "dml.runs.export",
    "train": "dml.runs.experiment",
    "embed": "dml.runs.image_embeddings",
    "search": "dml.runs.file_queries",
    "classify": "dml.runs.file_queries",
    "find_duplicates": "dml.runs.near_duplicates",
}


def __getattr__(name: str) -> Any:
    # Imported late: `import dml`, which every command needs, must not load torch.
    if name in FOR_USERS:
        from importlib import import_module

        return getattr(import_module(FOR_USERS[name]), name)
    if name == "__version__":
        from importlib.metadata import version

        return version("dml-benchmark")
    raise AttributeError(f"module 'dml' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *FOR_USERS, "__version__"})
