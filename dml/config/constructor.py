"""The objects that nodes of a config describe."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate

from dml.config.signatures import accepted_parameters, find_argument_problems, import_target
from dml.core.errors import ConfigError, UserError, describe_failure

# By option: keys of its node that are not arguments, besides `name`.
RESERVED = {
    "loss": ("result_id", "batch_kind", "miner"),
    "method": ("result_id",),
    "backbone": ("pooling", "train", "lora"),
}


class Constructor:
    """The class or function of a config node, with the options of the node as arguments.

    Args:
        node: with `_target_`.
        option: its dotted name.
        supplied: names of arguments that the caller adds.
        kind: base class of the object.
        description: of this kind, for messages.

    Attributes:
        problems: one line per option that does not fit the signature.
    """

    def __init__(
        self,
        node: dict[str, Any],
        option: str,
        supplied: Collection[str] = (),
        kind: Any = object,
        description: str = "",
    ) -> None:
        self.node, self.option, self.kind, self.description = node, option, kind, description
        reserved = RESERVED.get(option, ())
        self.arguments = {}
        for key, value in node.items():
            if key != "name" and key not in reserved:
                self.arguments[key] = value
        self.problems = list(find_argument_problems(self.arguments, option, supplied))

    def select_missing(self, values: dict[str, Any]) -> dict[str, Any]:
        """Returns the values that the signature accepts and the node does not set.

        An option of the node takes precedence: `num_classes: null` of the margin loss means one β
        for all classes.
        """
        accepted = accepted_parameters(import_target(self.node["_target_"], self.option))
        return {k: v for k, v in values.items() if k in accepted and k not in self.node}

    def __call__(self, **supplied: Any) -> Any:
        """Builds the object.

        Args:
            supplied: further arguments.

        Raises:
            ConfigError: the constructor does not exist, rejects its arguments, or builds an object
                of the wrong kind.
            UserError: raised by the constructor itself.
        """
        if self.problems:
            raise ConfigError(self.problems)
        try:
            built = instantiate(self.arguments, **supplied, _convert_="all")
        except InstantiationException as error:
            cause = error.__cause__ or error
            if isinstance(cause, UserError):
                raise cause from None
            reason = describe_failure(cause)
            first, _, rest = reason.partition(" ")  # messages of our losses begin with the argument
            named = f".{first}: {rest}" if first in self.node else f": {reason}"
            raise ConfigError([f"{self.option}{named}"]) from error
        if isinstance(built, self.kind):
            return built
        target = self.node["_target_"]
        raise ConfigError([f"{self.option}._target_: {target} does not create {self.description}"])
