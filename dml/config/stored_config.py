"""Fast reading of the `config.yaml` of many run folders, as plain data.

A stored config is resolved. What somebody else wrote may hold `${oc.env:…}` all the same, which
OmegaConf would replace by values of this machine: it is refused.

PyYAML parses in C, but converts each of the thousand words of a config in Python. Most words occur
in every config, so each is converted once.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from yaml.nodes import MappingNode, ScalarNode, SequenceNode  # type: ignore[import-untyped]

from dml.config.flatten import flatten

_TEXT = "tag:yaml.org,2002:str"
_CONVERTER = yaml.SafeLoader("")


@lru_cache(maxsize=10_000)
def _find_tag(value: str, implicit: tuple[bool, bool]) -> str:
    return _CONVERTER.resolve(ScalarNode, value, implicit)


@lru_cache(maxsize=10_000)
def _convert_word(tag: str, value: str) -> Any:
    return value if tag == _TEXT else _CONVERTER.construct_object(ScalarNode(tag, value))


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    def resolve(self, kind: type, value: str, implicit: Any) -> str:
        return (
            _find_tag(value, implicit)
            if kind is ScalarNode
            else super().resolve(kind, value, implicit)
        )


def read_stored_config(path: Path) -> dict[str, Any]:
    """Returns the content of a `config.yaml`, which is resolved, as nested dictionaries.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a config, or holds `${`.
    """
    try:
        content = _convert(yaml.compose(path.read_bytes(), _Loader))
    except FileNotFoundError:
        raise
    except (OSError, yaml.YAMLError, TypeError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error
    if not isinstance(content, dict):
        raise ValueError("not a table of options")
    refuse_interpolation(content)
    return content


def refuse_interpolation(content: Any) -> None:
    """Raises ValueError, with the name of the option, if a text in nested mappings holds `${`."""
    for name, value in flatten(content).items():
        if "${" in f"{name} {value}":
            raise ValueError(f"{name} holds ${{, which a stored config never does")


def _convert(node: Any) -> Any:
    if isinstance(node, MappingNode):
        return {_convert(key): _convert(value) for key, value in node.value}
    if isinstance(node, SequenceNode):
        return [_convert(one) for one in node.value]
    return None if node is None else _convert_word(node.tag, node.value)
