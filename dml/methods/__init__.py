"""Training methods: ways to compute the loss of a batch from any compatible loss.

plain                the loss of the batch
chance_constrained/  ccp: stages of proxies, with a pull towards the best weights
cross_batch          XBM, with which ccp is compared: a memory of past embeddings
metrix/              metrix: mixed inputs, features and embeddings
mixing_baselines     methods with which metrix is compared: i-Mix, MoCHi, Proxy Synthesis

loss_values          what a loss returns, also for a batch in which nothing is to be learned
reference_losses     pair losses, prepared for proxies and memories (ccp, XBM)
options              checks of options, and of losses for mixing
extra_metrics        what the papers measure of networks and losses: `evaluation.measures`
"""
