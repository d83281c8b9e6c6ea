"""Input and evaluation on the pretended device: scores of the CPU, no waits per image."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from dml.data.cache import open_image_source
from dml.data.image_index import ImageIndex, Subset
from dml.data.loaders import Batches, LoaderOptions, eval_batches, train_batches
from dml.data.protocol import Split
from dml.data.readers.digits import read_digits
from dml.data.readers.folder import read_folder
from dml.data.samplers import RandomBatches
from dml.data.transforms import ToInput, eval_transform, train_transform
from dml.models.embedder import Embedder
from dml.models.small_cnn import SmallCNN
from dml.retrieval import nearest_neighbors, retrieval_metrics
from dml.retrieval.compression_scores import Fitting, score_forms
from dml.retrieval.embeddings import SplitEmbeddings
from dml.runs.embeddings import Evaluator
from tests.data.trees import save
from tests.pretended_cuda.waits import count_waits, listed
from tests.retrieval import reference

CROP = train_transform("random_resized_crop", 32, resize=40, scale=(0.16, 1), ratio=(0.75, 1.33))


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> ImageIndex:
    root = tmp_path_factory.mktemp("photos")
    for number, size in enumerate([(50, 37), (30, 40), (40, 40), (41, 63)] * 2):
        save(root / str(number % 2) / f"{number}.jpg", number, "RGB", size)
    return read_folder(root)


def read(batches: Batches) -> list[tuple[Tensor, Tensor]]:
    with count_waits() as waits:
        found = list(batches)
    assert not waits, listed(waits)
    return [(images.cpu(), labels.cpu()) for images, labels in found]


@pytest.mark.parametrize("cache", [None, "full", 40])
def test_photos_reach_the_device_without_waits(photos, tmp_path, cache):
    view = photos.subset("train", "test")
    found = {}
    for device in ("cpu", "cuda"):
        source = open_image_source(photos, cache, tmp_path)
        options = LoaderOptions(ToInput([0.5] * 3, [0.2] * 3), torch.device(device), source=source)
        schedule = RandomBatches(view.labels, 3, seed=1)
        training = train_batches(view, CROP, options, schedule, seed=5, start=0, stop=4)
        testing = eval_batches(view, eval_transform(32, resize=40), options, 4)
        found[device] = [*read(training), *read(testing)]
    for (images, labels), (expected, same) in zip(found["cuda"], found["cpu"], strict=True):
        assert torch.equal(labels, same)
        assert torch.equal(images, expected)


def test_waits_of_an_evaluation_hardly_grow_with_its_images():
    digits = read_digits()
    torch.manual_seed(0)
    embedder = Embedder(SmallCNN(width=4), 8, pooling="avg")
    counts, scores = [], {}
    for images in (300, 600):
        rows = np.flatnonzero(digits.roles == "test")[:: 896 // images][:images]
        split = Split(Subset(digits, rows))
        for device in ("cpu", "cuda"):
            options = LoaderOptions(ToInput([0.5] * 3, [0.2] * 3), torch.device(device))
            evaluator = Evaluator(split, eval_transform(None), options, batch_size=64)
            embedder = embedder.to(device)
            with count_waits() as waits:
                scores[device] = evaluator.score(evaluator.embed(embedder))
        assert scores["cuda"] == pytest.approx(scores["cpu"], rel=1e-6)
        counts.append(waits.total())
    assert max(counts) <= 34, f"{counts}{listed(waits)}"


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_neighbors_and_scores_are_those_of_the_cpu(split, dtype):
    torch.manual_seed(0)
    labels = torch.arange(30).repeat_interleave(7)
    x = (torch.randn(30, 16)[labels] + 1.5 * torch.randn(len(labels), 16)).to(dtype)
    x[5] = x[40]  # a tie
    parts = (x[::2], labels[::2], x[1::2], labels[1::2]) if split else (x, labels)
    expected = retrieval_metrics(*parts, recall_at=(1, 2, 4, 8))
    found = retrieval_metrics(*(part.cuda() for part in parts), recall_at=(1, 2, 4, 8))
    assert found == pytest.approx(expected, rel=1e-9)
    points = parts[::2]
    near = nearest_neighbors(*(part.cuda() for part in points), k=5, backend="torch")
    assert near.indices.is_cuda
    assert torch.equal(near.indices.cpu(), nearest_neighbors(*points, k=5, backend="torch").indices)


@pytest.mark.parametrize("case", reference.CASES)
def test_neighbors_are_those_of_the_float64_ranking(case):
    embeddings = reference.CASES[case](torch.Generator().manual_seed(0))
    found = nearest_neighbors(embeddings.cuda(), k=9)
    assert torch.equal(found.indices.cpu(), reference.ranking(embeddings)[1][:, :9])


@pytest.mark.parametrize("forms", [["int8", "project3"], ["binary", "float16"]])
def test_smaller_vectors_score_as_on_the_cpu(forms):
    random = np.random.default_rng(0)
    points = torch.from_numpy(random.normal(size=(60, 6)).astype(np.float32))
    labels = torch.arange(60) % 6
    fitting = Fitting(points.numpy(), "them", True)
    table = {}
    for device in ("cpu", "cuda"):
        embeddings = SplitEmbeddings(points, labels).to(device)
        table[device] = score_forms(embeddings, forms, fitting, [1, 4])
        gallery = SplitEmbeddings(points, labels, points, labels, torch.arange(60)).to(device)
        assert score_forms(gallery, forms, fitting, [1, 4]) == table[device]
    assert table["cuda"] == table["cpu"]
