"""The search engine for CPUs: an overview.

**Task.** For every query, find the m gallery items with the highest score −½‖q − g‖², where m is
slightly larger than the number k of neighbors. `PlainSearch` does this in two lines: one matrix
product, one `topk`. On a CPU the product for Stanford Online Products (60,502² scores) takes
seconds, `topk` takes three times as long, and the scores do not fit into memory. This package
computes the same result with half of the product and with very little sorting.

**Steps** (`engine.CpuSearch`)

1. `ScaledGallery`, which all engines share, centers, scales and *shuffles* the items and divides
   them into tiles of up to 1536 items: a tile of scores stays in the processor's cache, and the
   shuffle makes every tile a random sample of the gallery.
2. `scans` computes the scores tile by tile. If the queries are the gallery itself, a tile of scores
   is used for its rows and, transposed, for its columns: each pair is computed once
   (`scan_symmetric`). Other queries are compared with all tiles in turn (`scan_rows`).
3. `running_top.RunningTop` keeps the entries above a threshold, which may be among a query's m
   best. A sample of a share f of the gallery contains about m·f of the m best entries; the
   threshold is the score at this rank plus 4.5 standard deviations, long before m good entries are
   known. Nearly all later scores are then dropped by one comparison, without a sort.
4. `RunningTop` compares and selects with NumPy, whose vector instructions are three to eight times
   as fast here as PyTorch's `topk`, `nonzero` and `sort`.
5. An entry (query, score, gallery row) is stored as one 64-bit integer, so that entries are ranked
   by sorting integers.
6. `Workers` assigns a tile to each thread instead of sharing every short operation.

**Why the result is exact.** With a small probability, a sample gives a threshold that is too high.
Then fewer than m entries exceed the threshold, which `RunningTop.finish` detects by comparing the
m-th best kept score with the threshold: all dropped scores are at most the threshold, so that an
m-th best score that is not below it proves that no entry was missed. Queries that fail this test, a
few in a million, are scanned again, always with the m-th best score so far as the threshold. The
candidates therefore are the m best by float32 score, for any data and any order of the threads.
`exact_search` corrects the rounding errors of these scores, for all engines.
"""

from dml.retrieval.cpu_search.engine import CpuSearch

__all__ = ["CpuSearch"]
