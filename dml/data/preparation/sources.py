"""The files of each published dataset and their sources."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dml.core.download import Checksum
from dml.data.image_index import ImageIndex
from dml.data.readers import cars, cub, inshop, sop


@dataclass(frozen=True)
class SourceFile:
    """One file of a published dataset.

    Attributes:
        name: file name as published.
        home: web page or description of the source.
        checksum: published checksum, if there is one.
        url: a direct link that needs no login, if there is one.
        into: folder, below the root of datasets, to which the file is unpacked or copied.
    """

    name: str
    home: str
    checksum: Checksum | None = None
    url: str | None = None
    into: str = "."


@dataclass(frozen=True)
class DatasetSource:
    """Files and reader of a dataset that can be prepared.

    Attributes:
        name: id of the dataset.
        folder: folder of the dataset below the root of datasets.
        files: all files of the dataset.
        read: the reader, called with the root; it raises an error for an incomplete dataset.
        build: creates `folder` from the unpacked files, called with their parent folder; None: the
            files contain `folder`.
    """

    name: str
    folder: str
    files: tuple[SourceFile, ...]
    read: Callable[[Path], ImageIndex]
    build: Callable[[Path], None] | None = None


SOURCES = {
    dataset.name: dataset
    for dataset in (
        DatasetSource(
            "cub",
            "CUB_200_2011",
            (
                SourceFile(
                    "CUB_200_2011.tgz",
                    home="https://data.caltech.edu/records/65de6-vp158",
                    checksum=Checksum("md5", "97eceeb196236b17998738112f37df78", 1_150_585_339),
                    url="https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz",
                ),
            ),
            cub.read_cub,
        ),
        DatasetSource(
            "cars",
            "cars196",
            (
                # No longer available from Stanford.
                SourceFile(
                    "car_ims.tgz",
                    home="a copy of ai.stanford.edu/~jkrause/car196/car_ims.tgz",
                    checksum=Checksum("md5", "d5c8f0aa497503f355e17dc7886c3f14"),
                    into="cars196",
                ),
                SourceFile(
                    "cars_annos.mat",
                    home="a copy of ai.stanford.edu/~jkrause/car196/cars_annos.mat",
                    checksum=Checksum("md5", "b407c6086d669747186bd1d764ff9dbc"),
                    into="cars196",
                ),
            ),
            cars.read_cars,
        ),
        DatasetSource(
            "sop",
            "Stanford_Online_Products",
            (
                SourceFile(
                    "Stanford_Online_Products.zip",
                    home="https://cvgl.stanford.edu/projects/lifted_struct",
                    checksum=Checksum("md5", "7f73d41a2f44250d4779881525aea32e", 3_083_860_082),
                    url="http://ftp.cs.stanford.edu/cs/cvgl/Stanford_Online_Products.zip",
                ),
            ),
            sop.read_sop,
        ),
        DatasetSource(
            "inshop",
            "inshop",
            (
                SourceFile(
                    "img.zip",
                    home="https://mmlab.ie.cuhk.edu.hk/projects/DeepFashion.html, after an "
                    "agreement: In-shop Clothes Retrieval Benchmark/Img/img.zip",
                    into="inshop",
                ),
                SourceFile(
                    "list_eval_partition.txt",
                    home="https://mmlab.ie.cuhk.edu.hk/projects/DeepFashion.html, after an "
                    "agreement: In-shop Clothes Retrieval Benchmark/Eval/list_eval_partition.txt",
                    into="inshop",
                ),
            ),
            inshop.read_inshop,
        ),
    )
}
