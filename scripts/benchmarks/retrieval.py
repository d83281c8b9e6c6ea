"""Retrieval metrics compared with PML's AccuracyCalculator: time, memory and values.

    python scripts/benchmark.py retrieval --sizes cub inshop sop --repeats 5

All compute P@1, R-precision and MAP@R at the k that these need (`+recall`: Recall@K too), one after
the other in one run, so that only their ratios count. Embeddings are drawn around
class centers at the sizes of the test sets; the number of images per class varies as it does there.

`--kernels` compares with AccuracyCalculator and with a flat search of faiss and vectorized metrics,
each under the kernel of OpenBLAS with which it is the fastest, in a process for each kernel.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.util import find_spec
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from dml.cli.parser import Parser, whole_number
from dml.retrieval import retrieval_metrics

from ._kernels import kernel_processes
from ._measure import added_peak, in_fresh_process, in_turns, machine, median_ratio, seconds

PML_NAMES = {
    "precision_at_1": "precision_at_1",
    "r_precision": "r_precision",
    "map_at_r": "mean_average_precision_at_r",
}


@dataclass(frozen=True)
class Size:
    """The shape of a test set.

    Attributes:
        queries: how many.
        gallery: how many; 0 searches the queries among themselves.
        classes: how many.
        largest: images of the largest class in what is searched.
        dim: length of the embeddings.
        noise: spread around the class centers, for a P@1 between about 0.5 and 0.9.
        recall_at: K of the dataset.
    """

    queries: int
    gallery: int
    classes: int
    largest: int
    dim: int
    noise: float
    recall_at: tuple[int, ...]


BACKENDS = ("auto", "torch", "faiss")
SIZES = {
    "cub": Size(5_924, 0, 100, 60, 512, 3.0, (1, 2, 4, 8)),
    "inshop": Size(14_218, 12_612, 3_985, 15, 128, 1.4, (1, 10)),
    "inshop_512": Size(14_218, 12_612, 3_985, 15, 512, 2.5, (1, 10)),
    "sop": Size(60_502, 0, 11_316, 12, 128, 1.4, (1, 10)),
    "sop_512": Size(60_502, 0, 11_316, 12, 512, 2.5, (1, 10)),
    # Recall@1000 needs a hundred times the neighbors of MAP@R
    "sop_recall_1000": Size(60_502, 0, 11_316, 12, 128, 1.4, (1, 10, 100, 1000)),
}


def draw_labels(items: int, size: Size, generator: torch.Generator) -> Tensor:
    """Draws class labels: two items or more for most classes, none beyond the largest."""
    room = torch.full((size.classes,), size.largest)
    share = torch.rand(size.classes, generator=generator) + 0.5
    counts = (share / share.sum() * items).long().clamp_(min=1).minimum(room)
    counts[0] = size.largest
    while (missing := items - int(counts.sum())) != 0:
        open_ = (counts < room if missing > 0 else counts > 1).nonzero().squeeze(1)
        chosen = open_[torch.randperm(len(open_), generator=generator)[: abs(missing)]]
        counts[chosen[chosen != 0]] += 1 if missing > 0 else -1
    return torch.arange(size.classes).repeat_interleave(counts)


def draw_embeddings(size: Size, seed: int = 0) -> tuple[Tensor, ...]:
    """Draws unit embeddings and labels of the queries, and of the gallery if there is one."""
    generator = torch.Generator().manual_seed(seed)
    centers = torch.randn(size.classes, size.dim, generator=generator)
    arguments: list[Tensor] = []
    for items in filter(None, (size.queries, size.gallery)):
        labels = draw_labels(items, size, generator)
        noise = torch.randn(items, size.dim, generator=generator)
        arguments += [F.normalize(centers[labels] + size.noise * noise), labels]
    return tuple(arguments)


def reference_metrics(arguments: tuple[Tensor, ...]) -> dict[str, float]:
    """Scores the float64 ranking, computed straight from float64 products of blocks of queries."""
    query, labels = arguments[:2]
    gallery, gallery_labels = arguments[2:] or arguments[:2]
    gallery64, sums, counted = gallery.double(), torch.zeros(3, dtype=torch.float64), 0
    half_square = 0.5 * gallery64.square().sum(dim=1)
    own = len(arguments) == 2
    for start in range(0, len(query), 512):
        part = slice(start, start + 512)
        scores = query[part].double() @ gallery64.T - half_square
        if own:
            scores[torch.arange(len(scores)), torch.arange(start, start + len(scores))] = -torch.inf
        relevant = torch.bincount(gallery_labels, minlength=int(labels.max()) + 1)[labels[part]]
        relevant -= int(own)
        k = int(relevant.max())
        hits = gallery_labels[scores.topk(k, dim=1).indices] == labels[part, None]
        for row, R in zip(hits, relevant.tolist(), strict=True):
            if R:
                found = row[:R].double()
                precision = found.cumsum(dim=0) / torch.arange(1, R + 1)
                sums += torch.stack([found[0], found.mean(), (precision * found).mean()])
                counted += 1
    return dict(zip(PML_NAMES, (sums / counted).tolist(), strict=True))


def compute_metrics(name: str, arguments: tuple[Tensor, ...], size: Size) -> dict[str, float]:
    """Scores embeddings by PML (`pml`) or by one of our backends (`torch`, `torch+recall`)."""
    if name != "pml":
        backend, _, recall = name.partition("+")
        recall_at = size.recall_at if recall else ()
        return retrieval_metrics(*arguments, recall_at=recall_at, backend=backend)
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    names = tuple(PML_NAMES.values())
    device = arguments[0].device
    pml = AccuracyCalculator(
        include=names, k="max_bin_count", device=device, knn_func=_search_without_faiss()
    )
    found = pml.get_accuracy(*arguments)
    return {ours: found[theirs] for ours, theirs in PML_NAMES.items()}


def _search_without_faiss() -> Any:
    """Returns None, PML's default (faiss); where faiss is missing, PML's own search."""
    if find_spec("faiss"):
        return None
    from pytorch_metric_learning.distances import LpDistance
    from pytorch_metric_learning.utils.inference import CustomKNN

    return CustomKNN(LpDistance(normalize_embeddings=False), batch_size=4096)


def peak_memory(name: str, size: Size) -> float:
    """Returns the peak in MB above the embeddings of one implementation.

    In one process the second run would reuse the memory that the first one did not release.
    """
    small = replace(size, queries=200, gallery=min(size.gallery, 200), classes=50, largest=10)
    compute_metrics(name, draw_embeddings(small), small)  # libraries and threads, which all need
    arguments = draw_embeddings(size)
    return added_peak(lambda: compute_metrics(name, arguments, size), "cpu")


def benchmark(name: str, repeats: int, backends: Sequence[str], exact: bool) -> None:
    """Prints the comparison of one size."""
    size = SIZES[name]
    arguments = draw_embeddings(size)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    moved = tuple(part.to(device) for part in arguments)
    names = ["pml"]
    for backend in backends:
        names += [backend, f"{backend}+recall"]
    results: dict[str, dict[str, float]] = {}

    def score(each: str) -> None:
        results[each] = compute_metrics(each, moved, size)

    times = in_turns({each: partial(seconds, partial(score, each)) for each in names}, repeats)
    print(f"{name}: {size.queries}/{size.gallery or size.queries} items, {size.dim} dimensions")
    base = median(times["pml"])
    source, truth = "PML", results["pml"]
    if exact:
        source, truth = "the float64 ranking", reference_metrics(arguments)
    for each in names:
        away = max(abs(results[each][key] - truth[key]) for key in PML_NAMES)
        values = _write_values(results[each])
        memory = ""
        if device.type == "cpu":
            memory = f"{in_fresh_process(peak_memory, each, size):+6.0f} MB"
        time = median(times[each])
        print(f"  {each:12}{time:8.3f} s {base / time:6.2f}x {memory}  {values}")
        print(f"         from {source}: {away:.1e}", flush=True)


def flat_metrics(arguments: tuple[Tensor, ...]) -> dict[str, float]:
    """Scores embeddings by a flat search of faiss, with vectorized metrics."""
    import faiss

    query, labels = arguments[:2]
    gallery, gallery_labels = arguments[2:] or arguments[:2]
    is_gallery = len(arguments) == 2
    relevant = torch.bincount(gallery_labels, minlength=int(labels.max()) + 1)[labels]
    relevant -= int(is_gallery)
    k = int(relevant.max())
    index = faiss.IndexFlatIP(query.shape[1])  # of unit vectors
    index.add(gallery.numpy())
    rows = torch.from_numpy(index.search(query.numpy(), k + int(is_gallery))[1])
    if is_gallery:
        rows = _without_itself(rows)
    rows, labels, relevant = rows[relevant > 0], labels[relevant > 0], relevant[relevant > 0]
    ranks = torch.arange(1, k + 1)
    hits = (gallery_labels[rows] == labels[:, None]) & (ranks <= relevant[:, None])
    precision = hits.cumsum(dim=1) / ranks
    means = (
        hits[:, 0].double().mean(),
        (hits.sum(dim=1) / relevant).double().mean(),
        ((precision * hits).sum(dim=1) / relevant).double().mean(),
    )
    return dict(zip(PML_NAMES, map(float, means), strict=True))


def _without_itself(rows: Tensor) -> Tensor:
    """Returns the neighbors without the query, or without the last one where it is not there."""
    is_query = rows == torch.arange(len(rows))[:, None]
    is_query[:, -1] |= ~is_query.any(dim=1)
    return rows[~is_query].view(len(rows), -1)


@cache
def _drawn(size: str) -> tuple[Tensor, ...]:
    return draw_embeddings(SIZES[size])


def time_metrics(name: str, size: str) -> tuple[float, float, dict[str, float]]:
    """Returns seconds on the clock and of the processor, and the scores."""
    arguments = _drawn(size)
    start, used = time.perf_counter(), time.process_time()
    scores = _metrics_of(name, arguments, SIZES[size])
    return time.perf_counter() - start, time.process_time() - used, scores


def _metrics_of(name: str, arguments: tuple[Tensor, ...], size: Size) -> dict[str, float]:
    return flat_metrics(arguments) if name == "flat" else compute_metrics(name, arguments, size)


def compare_kernels(sizes: Sequence[str], repeats: int) -> None:
    """Prints times of each implementation under each kernel, and the ratios of the fastest."""
    with kernel_processes() as processes:
        for size in sizes:
            measures = {}
            for name in ("flat", "pml", "auto"):
                for kernel, process in processes.items():
                    measures[name, kernel] = partial(process.call, time_metrics, name, size)
            in_turns(measures, 1)  # libraries, and what is measured once
            _print_kernels(size, in_turns(measures, repeats))


def _print_kernels(size: str, results: dict[tuple[str, str], list[Any]]) -> None:
    print(f"{size}{'':20}{'wall s':>8}{'CPU s':>8}")
    fastest: dict[str, list[float]] = {}
    for (name, kernel), rounds in results.items():
        walls, processors, scores = zip(*rounds, strict=True)
        print(f"  {name:8}{kernel:12}{median(walls):>9.3f}{median(processors):>8.3f}", end="  ")
        print(_write_values(scores[0]), flush=True)
        if name not in fastest or sum(processors) < sum(fastest[name]):
            fastest[name] = list(processors)
    ours = fastest.pop("auto")
    for name, peer in fastest.items():
        ratio = median_ratio(ours, peer)
        print(f"  CPU time of auto, relative to {name}: {ratio:.2f}", flush=True)


def _write_values(scores: dict[str, float]) -> str:
    values = []
    for key, value in scores.items():
        if key != "queries":
            values.append(f"{key} {value:.4f}")
    return " ".join(values)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the suite from the command line."""
    parser = Parser(__doc__, program="benchmark.py retrieval")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["cub", "inshop", "sop"])
    parser.add_argument("--repeats", type=whole_number(1), default=5)
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=["auto"])
    parser.add_argument("--exact", action="store_true", help="compare with a float64 ranking too")
    parser.add_argument(
        "--kernels", action="store_true", help="each under its fastest kernel of OpenBLAS, on a CPU"
    )
    options = parser.parse_args(argv)
    if options.kernels:
        print(f"{machine('cpu')}, {torch.get_num_threads()} threads, torch {torch.__version__}")
        compare_kernels(options.sizes, options.repeats)
        return
    device = "CPU"
    if torch.cuda.is_available():
        device = torch.cuda.get_device_name()
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads,"
        f" {torch.backends.cpu.get_cpu_capability()}, {device}"
    )
    for name in options.sizes:
        benchmark(name, options.repeats, options.backends, options.exact)
