"""What is known of the images on which networks were pretrained: `papers/pretraining.csv`."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from dml.results.published import read_table


@dataclass(frozen=True)
class Pretraining:
    """The images of a network's pretraining, and whether images of a dataset are among them.

    Attributes:
        images: name of the pretraining's dataset.
        holds: `yes`, `no` or `unknown`: whether it is known to hold images of the dataset.
        source: who says so, or why it is unknown.
    """

    images: str
    holds: str
    source: str


def find_pretraining(network: str, dataset: str) -> Pretraining | None:
    """Returns what is known of a network and a dataset; None of a network that is not listed.

    Args:
        network: timm's name with the tag of the weights, or the name in a published table.
        dataset: id of the dataset, also with its crop or resolution: `cub_boxes`.
    """
    name = dataset.partition("_")[0]
    for row in read_table("pretraining.csv"):
        if fnmatchcase(network, row["network"]) and row["dataset"] in ("", name):
            return Pretraining(row["pretraining"], row["holds"], row["source"])
    return None
