import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dml.core.errors import UserError
from dml.data import cache as cache_module
from dml.data.base import Decoder, ImageDataset, ImageIndex
from dml.data.cache import PixelCache, open_cache
from dml.data.decode import load_image
from dml.data.folder import read_folder
from dml.data.loaders import eval_batches, open_source, train_batches
from dml.data.samplers import RandomBatches
from dml.data.transforms import eval_transform, train_transform
from tests.data.trees import class_folders, save

CPU = torch.device("cpu")
MLRC = train_transform("random_resized_crop", 227, resize=256, scale=(0.16, 1), ratio=(0.75, 1.33))


@pytest.fixture
def index(tmp_path: Path) -> ImageIndex:
    class_folders(tmp_path / "images", classes=4, per_class=3)
    return read_folder(tmp_path / "images")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> ImageIndex:
    """Photos of ordinary and of odd sizes, in every color mode."""
    root = tmp_path_factory.mktemp("photos")
    shapes = [(500, 375), (300, 400), (256, 256), (180, 240), (700, 260), (255, 257)]
    for number, size in enumerate(shapes):
        mode = ["RGB", "L", "CMYK"][number % 3]
        save(root / str(number % 2) / f"{number}.jpg", number, mode, size)
    return read_folder(root)


def test_full_cache_holds_what_the_decoder_gives(photos: ImageIndex, tmp_path: Path):
    cache = open_cache(photos, None, tmp_path)
    for row, path in enumerate(photos.images):
        assert torch.equal(cache[row], load_image(path))


@pytest.mark.parametrize(
    "transform", [MLRC, eval_transform(227, resize=256)], ids=["train", "test"]
)
def test_mlrc_sees_the_same_pixels_with_and_without_the_256_cache(
    photos: ImageIndex, tmp_path: Path, transform: nn.Module
):
    view = photos.subset("train", "test")
    exact = ImageDataset(view, transform, Decoder(photos.images))
    cached = ImageDataset(view, transform, open_cache(photos, 256, tmp_path))
    for row in range(len(view)):
        for draw in range(6):
            assert torch.equal(exact[(row, draw)][0], cached[(row, draw)][0])  # tolerance: none


@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_deliver_the_same_batches_from_every_source(
    photos: ImageIndex, tmp_path: Path, workers: int
):
    view = photos.subset("train", "test")

    def everything(cache: int | str | None) -> list[Tensor]:
        source = open_source(photos, cache, "cpu", tmp_path)
        schedule = RandomBatches(view.labels, 2, seed=1)
        options = {"workers": workers, "device": CPU, "source": source}
        train = train_batches(
            view, MLRC, nn.Identity(), schedule, seed=5, start=1, stop=5, **options
        )
        test = eval_batches(
            view, eval_transform(227, resize=256), nn.Identity(), batch_size=4, **options
        )
        return [images for batches in (train, test) for images, _ in batches]

    decoded = everything(None)
    assert len(decoded) == 6
    for cache in (256, "full"):
        assert all(map(torch.equal, everything(cache), decoded))


def test_second_opening_reads_the_file_and_decodes_nothing(
    index: ImageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    first = open_cache(index, 20, tmp_path)
    monkeypatch.setattr(cache_module, "load_image", None)
    again = open_cache(index, 20, tmp_path)
    assert first.path == again.path
    assert torch.equal(first.pixels, again.pixels)
    assert tuple(again[0].shape) == (3, 20, 26)


def test_damaged_file_is_named(index: ImageIndex, tmp_path: Path):
    path = open_cache(index, 20, tmp_path).path
    content = path.read_bytes()
    for damaged in (content[:-100], b"", content[1:]):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=rf"{path.name} is damaged; delete it"):
            open_cache(index, 20, tmp_path)


def test_workers_map_the_file_again_instead_of_copying_it(index: ImageIndex, tmp_path: Path):
    cache = open_cache(index, 20, tmp_path)
    sent = pickle.dumps(cache)
    assert len(sent) < 1000
    assert torch.equal(pickle.loads(sent)[4], cache[4])


def test_datasets_can_be_sent_to_spawned_workers(photos: ImageIndex, tmp_path: Path):
    view = photos.subset("train", "test")
    for source in (None, open_cache(photos, 256, tmp_path)):
        dataset = ImageDataset(view, MLRC, source)
        sent = pickle.loads(pickle.dumps(dataset))
        assert torch.equal(sent[(1, 5)][0], dataset[(1, 5)][0])


def test_images_in_memory_need_no_file(tmp_path: Path):
    images = np.random.default_rng(0).integers(0, 256, (4, 5, 6, 3), dtype=np.uint8)
    index = ImageIndex("x", images, np.arange(4), np.full(4, "train"))
    cache = open_cache(index, None, tmp_path)
    assert all(torch.equal(cache[row], load_image(images[row])) for row in range(4))
    assert torch.equal(pickle.loads(pickle.dumps(cache))[2], cache[2])
    assert open_source(index, "full", "cpu", tmp_path) is None
    assert not list(tmp_path.iterdir())


def test_source_follows_the_options(index: ImageIndex, tmp_path: Path):
    assert open_source(index, None, "cpu", tmp_path) is None
    source = open_source(index, 20, "cpu", tmp_path / "list.csv")
    assert isinstance(source, PixelCache)
    assert source.path.parent == tmp_path / ".cache"
    assert tuple(source[0].shape) == (3, 20, 26)
    with pytest.raises(UserError, match=r"data\.cache_device: cuda needs decoded images"):
        open_source(index, None, "cuda", tmp_path)
    for value in ("ful", 0, -3):
        with pytest.raises(UserError, match=r"data\.cache: "):
            open_source(index, value, "cpu", tmp_path)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_pixels_on_the_gpu_give_the_same_batches_within_one_level(
    photos: ImageIndex, tmp_path: Path
):
    view = photos.subset("train", "test")
    schedule = RandomBatches(view.labels, 3, seed=1)

    def batch(cache_device: str) -> Tensor:
        batches = train_batches(
            view,
            MLRC,
            nn.Identity(),
            schedule,
            seed=5,
            start=0,
            stop=1,
            workers=2,
            device=torch.device("cuda"),
            source=open_source(photos, 256, cache_device, tmp_path),
        )
        return next(iter(batches))[0].int()

    assert (batch("cuda") - batch("cpu")).abs().max() <= 1
