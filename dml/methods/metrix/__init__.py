"""Metrix: metric learning with mixed examples (It Takes Two to Tango, ICLR 2022).

metrix               the method: clean loss plus loss of mixed examples (Eq. 10)
mixing_pairs         the pairs of examples that are mixed for each anchor
mixed_pooling        pooling of mixed feature maps without building them
mixed_similarity     similarities of mixes to anchors and proxies
analysis             mixed embeddings of batches, and the share that acts as positives (Figure 2)
"""

from dml.methods.metrix.metrix import TYPES, Metrix

__all__ = ["TYPES", "Metrix"]
