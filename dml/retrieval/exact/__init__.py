"""Exact nearest neighbors, and exact ranks of all relevant items, within a bound on memory.

search          the two entries, `nearest_neighbors` and `ExactSearch`
order           the order of items at almost or exactly equal distances
plain_search    the engines for GPUs: one product and one topk, or faiss
cpu_search      the engine for CPUs: the same candidates in a fraction of the time
scaled_gallery  the gallery in tiles, scaled against overflow
relevant_ranks  how many items are closer than each relevant one
full_ranking    the whole ranking, for MAP over all items
"""
