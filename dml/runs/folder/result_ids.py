"""Ids of a run's method and protocol in the tables of published results."""

from __future__ import annotations

from hydra.utils import get_class

from dml.config.schema import Config

PLAIN = "dml.methods.plain.Plain"


def result_id(config: Config) -> str:
    """Returns the id of loss and method in the tables of published results.

    It is given in the file of the method (`result_id`), or by its class if it depends on options.
    """
    if "result_id" in config.method:
        return config.method["result_id"]
    loss_id = config.loss["result_id"]
    if config.method["_target_"] == PLAIN:
        return loss_id  # as the class says, without loading torch
    method = get_class(config.method["_target_"])
    if hasattr(method, "result_id"):
        return method.result_id(loss_id, config.method)
    return loss_id if config.method["name"] == "plain" else f"{loss_id}+{config.method['name']}"


def protocol_id(config: Config) -> str:
    """Returns the id of the protocol in the tables of published results, with its label noise."""
    clean, noise = config.protocol.result_id, config.data.label_noise
    return clean if not noise else f"{clean.removesuffix('_standard')}_noise{100 * noise:g}"
