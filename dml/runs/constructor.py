"""Constructors named by the `_target_` of a config node, bound to the options of the node."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import cached_property
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate
from torch import nn

from dml.config.signatures import (
    accepted_parameters,
    constructor_arguments,
    find_argument_problems,
    import_target,
)
from dml.core.errors import ConfigError, UserError, describe_failure
from dml.data.image_index import ImageIndex
from dml.training.interfaces import Method

GPU_SWITCHES = ("use_gpu", "use_cuda", "cuda", "gpu")  # of public losses, usually true

# Per option: a description for messages, the base class, and the attributes of what is built.
REQUIRED: dict[str, tuple[str, type, tuple[str, ...]]] = {
    "loss": ("a loss, a torch.nn.Module", nn.Module, ()),
    "loss.miner": ("a miner, which can be called", Callable, ()),  # type: ignore[dict-item]
    "method": ("a method; derive it from dml.training.interfaces.Method", Method, ()),
    "backbone": ("a backbone, a torch.nn.Module", nn.Module, ()),
    "data.reader": ("an index of images, a dml.data.image_index.ImageIndex", ImageIndex, ()),
    "tracking": (
        "a tracker; derive it from dml.tracking.Tracker",
        object,
        ("keeps_a_copy", "start", "log", "job_done", "conclude", "finish"),
    ),
    "optim.schedule": ("a learning-rate schedule", object, ("step", "state_dict")),
}


class Constructor:
    """The class or function of a config node, with the options of the node as arguments.

    The options are bound to its signature here and nowhere else.

    Args:
        node: with `_target_`.
        option: its dotted name, for messages.
        reserved: keys of the node that are not arguments.
        supplied: names of the arguments that the caller may add.

    Attributes:
        problems: one line per option that does not fit the signature.
    """

    def __init__(
        self,
        node: dict[str, Any],
        option: str,
        reserved: Iterable[str] = (),
        supplied: Collection[str] = (),
    ) -> None:
        self.node, self.option, self.reserved = node, option, tuple(reserved)
        self.problems = list(find_argument_problems(node, option, *self.reserved, given=supplied))

    @cached_property
    def target(self) -> Callable[..., Any]:
        """The class or function.

        Raises:
            ConfigError: it does not exist.
        """
        return import_target(self.node["_target_"], self.option)

    def select_missing(self, values: dict[str, Any]) -> dict[str, Any]:
        """Returns those values that the signature accepts and the node does not set.

        An option of the node takes precedence: `num_classes: null` of the margin loss means one β
        for all classes.
        """
        accepted = accepted_parameters(self.target)
        return {k: v for k, v in values.items() if k in accepted and k not in self.node}

    def check(self) -> None:
        """Raises ConfigError with all problems, if there are any."""
        if self.problems:
            raise ConfigError(self.problems)

    def __call__(self, **supplied: Any) -> Any:
        """Builds the object.

        Args:
            supplied: further arguments.

        Raises:
            ConfigError: the constructor does not exist, rejects its arguments, or builds an object
                of the wrong kind.
            UserError: raised by the constructor itself.
        """
        self.check()
        try:
            built = instantiate(
                constructor_arguments(self.node, *self.reserved), **supplied, _convert_="all"
            )
        except InstantiationException as error:
            cause = error.__cause__ or error
            if isinstance(cause, UserError):
                raise cause from None
            raise ConfigError([self._describe_rejection(cause)]) from error
        if self.option in REQUIRED:
            description, kind, attributes = REQUIRED[self.option]
            if not (isinstance(built, kind) and all(hasattr(built, name) for name in attributes)):
                target = self.node["_target_"]
                raise ConfigError(
                    [f"{self.option}._target_: {target} does not create {description}"]
                )
        return built

    def describe(self, error: BaseException) -> str:
        """Returns an error on one line, with the argument that keeps a class off the GPU."""
        reason = describe_failure(error)
        switch = next((one for one in GPU_SWITCHES if one in accepted_parameters(self.target)), "")
        of_gpu = any(word in str(error).lower() for word in ("cuda", "nvidia"))
        if switch and of_gpu and self.node.get(switch) is not False:
            return f"{reason}; without a GPU add +{self.option}.{switch}=false"
        return reason

    def _describe_rejection(self, error: BaseException) -> str:
        """The message of a constructor, with the option that it begins with."""
        reason = self.describe(error)
        first, _, rest = reason.partition(" ")
        if first in self.node:
            return f"{self.option}.{first}: {rest}"
        return f"{self.option}: {reason}"
