"""Of which files each published dataset consists, and where they are to be had."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dml.data.base import ImageIndex
from dml.data.cars import read_cars
from dml.data.cub import read_cub
from dml.data.inshop import read_inshop
from dml.data.sop import read_sop


@dataclass(frozen=True)
class File:
    """One file of a published dataset.

    Attributes:
        name: as published.
        home: where a person finds it.
        md5: published checksum, if there is one.
        url: a direct link that needs no login, if there is one.
        into: folder, below the root of datasets, that it is unpacked or copied to.
    """

    name: str
    home: str
    md5: str | None = None
    url: str | None = None
    into: str = "."


@dataclass(frozen=True)
class Published:
    """How a dataset is made ready.

    Attributes:
        name, title: id and name.
        folder: what stands under the root of datasets in the end.
        files: all that is needed.
        read: the reader, called with the root; its counts decide whether the dataset is whole.
    """

    name: str
    title: str
    folder: str
    files: tuple[File, ...]
    read: Callable[[Path], ImageIndex]


DATASETS = {
    dataset.name: dataset
    for dataset in (
        Published(
            "cub",
            "CUB-200-2011",
            "CUB_200_2011",
            (
                File(
                    "CUB_200_2011.tgz",
                    home="https://data.caltech.edu/records/65de6-vp158",
                    md5="97eceeb196236b17998738112f37df78",
                    url="https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz",
                ),
            ),
            read_cub,
        ),
        Published(
            "cars",
            "Cars196",
            "cars196",
            (
                # Stanford took its own copies down.
                File(
                    "car_ims.tgz",
                    home="a copy of ai.stanford.edu/~jkrause/car196/car_ims.tgz",
                    md5="d5c8f0aa497503f355e17dc7886c3f14",
                    into="cars196",
                ),
                File(
                    "cars_annos.mat",
                    home="a copy of ai.stanford.edu/~jkrause/car196/cars_annos.mat",
                    md5="b407c6086d669747186bd1d764ff9dbc",
                    into="cars196",
                ),
            ),
            read_cars,
        ),
        Published(
            "sop",
            "Stanford Online Products",
            "Stanford_Online_Products",
            (
                File(
                    "Stanford_Online_Products.zip",
                    home="https://cvgl.stanford.edu/projects/lifted_struct",
                    md5="7f73d41a2f44250d4779881525aea32e",
                    url="http://ftp.cs.stanford.edu/cs/cvgl/Stanford_Online_Products.zip",
                ),
            ),
            read_sop,
        ),
        Published(
            "inshop",
            "In-Shop Clothes Retrieval",
            "inshop",
            (
                File(
                    "img.zip",
                    home="In-shop Clothes Retrieval Benchmark/Img/img.zip of DeepFashion, "
                    "https://mmlab.ie.cuhk.edu.hk/projects/DeepFashion.html (an agreement comes "
                    "first)",
                    into="inshop",
                ),
                File(
                    "list_eval_partition.txt",
                    home="In-shop Clothes Retrieval Benchmark/Eval/list_eval_partition.txt, there",
                    into="inshop",
                ),
            ),
            read_inshop,
        ),
    )
}
