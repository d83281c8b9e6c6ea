"""The files of each published dataset and their addresses.

Addresses are places where the files have been seen; their checksums decide whether they are there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dml.core.download import Checksum
from dml.data.image_index import ImageIndex
from dml.data.readers import cars, cub, inat, inshop, sop
from dml.data.readers.layouts import Layout

COPIES = "https://huggingface.co/datasets/XiN0919/FGVC/resolve/main"
DRIVE = "https://drive.usercontent.google.com/download?export=download&confirm=t&id="
IN_SHOP = "https://mmlab.ie.cuhk.edu.hk/projects/DeepFashion.html"


@dataclass(frozen=True)
class SourceFile:
    """One file of a published dataset.

    Attributes:
        name: file name as published.
        home: web page or description of the source.
        checksum: published checksum, if there is one.
        addresses: direct links that need no login, in the order in which they are tried.
        into: folder, below the root of datasets, to which the file is unpacked or copied.
        inside: paths of the file below a folder of files, as on the authors' Drive.
        warning: what to know before it is downloaded; empty: nothing.
        announced: bytes that an address is known to announce, where no size is published; they
            are shown, and not checked.
    """

    name: str
    home: str
    checksum: Checksum | None = None
    addresses: tuple[str, ...] = ()
    into: str = "."
    inside: tuple[str, ...] = ()
    warning: str = ""
    announced: int | None = None

    @property
    def size(self) -> int | None:
        """Bytes of the file, published or announced; None: unknown."""
        if self.checksum is not None and self.checksum.size is not None:
            return self.checksum.size
        return self.announced

    def describe(self) -> str:
        """Returns name, checksum and size: `CUB_200_2011.tgz  md5 97ece…, 1,150,585,339 bytes`."""
        checksum = "no checksum is published"
        if self.checksum is not None:
            checksum = self.checksum.describe()
            if self.checksum.size is not None:
                return f"{self.name}  {checksum}"
        size = "size unknown"
        if self.announced is not None:
            size = f"about {self.announced:,} bytes"
        return f"{self.name}  {checksum}, {size}"


@dataclass(frozen=True)
class DatasetSource:
    """Files and reader of a dataset that can be prepared.

    Attributes:
        name: id of the dataset.
        folder: folder of the dataset below the root of datasets.
        files: all files of the dataset.
        read: the reader, called with the root; it raises an error for an incomplete dataset.
        layouts: in which copies of the dataset are read.
        build: creates `folder` from the unpacked files, called with their parent folder; None: the
            files contain `folder`.
        is_sampled: whether a check decodes an image of each class instead of all, which would take
            hours.
    """

    name: str
    folder: str
    files: tuple[SourceFile, ...]
    read: Callable[[Path], ImageIndex]
    layouts: tuple[Layout, ...] = ()
    build: Callable[[Path], None] | None = None
    is_sampled: bool = False


CUB = SourceFile(
    "CUB_200_2011.tgz",
    home="https://data.caltech.edu/records/65de6-vp158",
    checksum=Checksum("md5", "97eceeb196236b17998738112f37df78", 1_150_585_339),
    addresses=(
        "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz",
        "https://s3.amazonaws.com/fast-ai-imageclas/CUB_200_2011.tgz",
        f"{COPIES}/CUB_200_2011.tgz",
        f"{DRIVE}1hbzc_P1FuxMkcabkgn9ZKinBwW683j45",
    ),
)
CARS = (
    # The small file first, whose failure costs no hour.
    SourceFile(
        "cars_annos.mat",
        home="a copy of ai.stanford.edu/~jkrause/car196/cars_annos.mat",
        checksum=Checksum("md5", "b407c6086d669747186bd1d764ff9dbc"),
        addresses=(f"{COPIES}/cars_annos.mat",),
        into="cars196",
        announced=394_471,
    ),
    SourceFile(
        "car_ims.tgz",
        home="a copy of ai.stanford.edu/~jkrause/car196/car_ims.tgz",
        checksum=Checksum("md5", "d5c8f0aa497503f355e17dc7886c3f14"),
        addresses=(f"{COPIES}/car_ims.tgz",),
        into="cars196",
        announced=1_956_628_579,
    ),
)
SOP = SourceFile(
    "Stanford_Online_Products.zip",
    home="https://cvgl.stanford.edu/projects/lifted_struct",
    checksum=Checksum("md5", "7f73d41a2f44250d4779881525aea32e", 3_083_860_082),
    addresses=(
        "http://ftp.cs.stanford.edu/cs/cvgl/Stanford_Online_Products.zip",
        "ftp://cs.stanford.edu/cs/cvgl/Stanford_Online_Products.zip",
        f"{DRIVE}1TclrpQOF_ullUP99wk_gjGN8pKvtErG8",
    ),
)
# No checksums are published: the counts and the decoding of all images are the check.
INSHOP = (
    SourceFile(
        "list_eval_partition.txt",
        home=f"{IN_SHOP}: In-shop Clothes Retrieval Benchmark/Eval/list_eval_partition.txt",
        addresses=(f"{DRIVE}0B7EVK8r0v71pYVBqLXpRVjhHeWM&resourcekey=0-rxJ2QcImN-IRo_Bv9QSXmg",),
        into="inshop",
        inside=("Eval/list_eval_partition.txt",),
    ),
    SourceFile(
        "img.zip",
        home=f"{IN_SHOP}: In-shop Clothes Retrieval Benchmark/Img/img.zip",
        addresses=(f"{DRIVE}0B7EVK8r0v71pS2YxRE1QTFZzekU&resourcekey=0-2n-dbZygJiZdm0UbEaFRTA",),
        into="inshop",
        inside=("Img/img.zip",),
    ),
)

INATURALIST = "https://ml-inat-competition-datasets.s3.amazonaws.com/2018"
INAT = (
    SourceFile(
        "Inat_dataset_splits.zip",
        home="the split of Smooth-AP's authors, github.com/Andrew-Brown1/Smooth_AP",
        addresses=(f"{DRIVE}1sXfkBTFDrRU3__-NUs1qBP3sf_0uMB98",),
        into="inat",
    ),
    SourceFile(
        "train_val2018.tar.gz",
        home="https://github.com/visipedia/inat_comp/tree/master/2018",
        checksum=Checksum("md5", "b1c6952ce38f31868cc50ea72d066cc3"),
        addresses=(f"{INATURALIST}/train_val2018.tar.gz",),
        into="inat",
        warning="120 GB to download, and as much again to unpack; for non-commercial research",
        announced=120_000_000_000,
    ),
)

PUBLISHED = (
    DatasetSource("cub", "CUB_200_2011", (CUB,), cub.read_cub, cub.LAYOUTS),
    DatasetSource("cars", "cars196", CARS, cars.read_cars, cars.LAYOUTS),
    DatasetSource("sop", "Stanford_Online_Products", (SOP,), sop.read_sop, sop.LAYOUTS),
    DatasetSource("inshop", "inshop", INSHOP, inshop.read_any_resolution, inshop.LAYOUTS),
    DatasetSource("inat", "inat", INAT, inat.read_inat, inat.LAYOUTS, is_sampled=True),
)
SOURCES = {dataset.name: dataset for dataset in PUBLISHED}
