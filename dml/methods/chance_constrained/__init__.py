"""CCP: Deep Metric Learning with Chance Constraints.

chance_constrained  the method: stages of proxy training (Algorithms 1 and 2)
k_center            the choice of new proxies from a pool of images
"""

from dml.methods.chance_constrained.chance_constrained import ChanceConstrained, StageStart

__all__ = ["ChanceConstrained", "StageStart"]
