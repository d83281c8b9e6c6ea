"""The search engine for CPUs, on one page.

**The task.** For every query, the m gallery items with the highest score −½‖q − g‖², a few more
than the k neighbors that are wanted. `PlainSearch` says it in two lines: one matrix product, one
`topk`. On a CPU the product of Stanford Online Products (60,502² scores) takes seconds, `topk` over
all of them three times as long, and the scores do not fit the memory. This folder does the same
with half of the product and with hardly any sorting.

**The way of a query through it** (`engine.CpuSearch`)

1. `ScaledGallery`, which all engines share, has centered, scaled and *shuffled* the items and cut
   them into tiles of up to 1536 items: a tile of scores stays in the processor's cache, and the
   shuffle makes every tile a fair sample of the gallery.
2. `scans` computes the scores tile by tile. If the queries are the gallery itself, a tile of scores
   serves its rows and, transposed, its columns: each pair is computed once (`scan_symmetric`).
   Other queries meet the tiles in turn (`scan_rows`).
3. `running_top.RunningTop` keeps what may be among a query's m best: entries above a threshold. As
   a share f of the gallery has been seen, about m·f of the m best have been; so the threshold is
   the score at that rank plus 4.5 standard deviations, long before m good entries are known. From
   then on nearly all scores are dropped by one comparison, without a sort.
4. It makes this comparison and finds the first thresholds in NumPy, whose vector
   instructions are three to eight times as fast here as PyTorch's `topk`, `nonzero` and `sort`.
5. It writes an entry (query, score, gallery row) as one 64-bit integer, so that entries are
   ranked by one sort of plain numbers.
6. `Workers` lets several threads take a tile each instead of sharing every short operation.

**Why the result is exact.** A threshold can be too high only by bad luck of the sample. Then fewer
than m entries beat it at the end, which `RunningTop.finish` notices by comparing the m-th best kept
score with the threshold: everything dropped scored at most the threshold, so an m-th best that is
not below it proves that nothing was missed. The other queries, a few in a million, are scanned
again with thresholds that only ever are the m-th best so far. The candidates therefore are the m
best by float32 score, on any data and in any order of the threads. That rounding errors of these
scores do not reach the ranking is the business of `exact_search`, for all engines alike.
"""

from dml.retrieval.cpu_search.engine import CpuSearch

__all__ = ["CpuSearch"]
