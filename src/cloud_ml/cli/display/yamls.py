"""YAML for people: imported when somebody writes or reads it, never otherwise."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    """Plain values without the surprises of YAML 1.1: ``no``, ``2026-01-31``, ``1:30`` and
    ``012`` stay text.
    """

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - as the base class has it


for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", "~nN"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?(?:0|[1-9][0-9]*)\.[0-9]+(?:[eE][-+]?[0-9]+)?", "-+0123456789"),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), list(_first)
    )
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile("^$"), [""])


def _without_repeats(loader: _Loader, node: yaml.MappingNode) -> Iterator[dict[Any, Any]]:
    """A mapping; a name that its text has twice is refused."""
    names = [one.value for one, _ in node.value if isinstance(one, yaml.ScalarNode)]
    for place, name in enumerate(names):
        if name in names[:place]:
            raise yaml.YAMLError(f"the name {name[:80]!r} is given twice")
    yield from loader.construct_yaml_map(node)


_Loader.add_constructor("tag:yaml.org,2002:map", _without_repeats)


def load(text: str) -> Any:
    """The value of a document.

    Raises:
        ValueError: It is no YAML, or more than plain values; the message is one line.
    """
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a safe loader with fewer types
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())) from error


def dump(document: Any) -> str:
    """A document of JSON values as YAML, which readers of either version of YAML take for the
    same.
    """
    text = _dump(document, allow_unicode=True)
    # YAML takes signs that turn text around for printable; they are escaped, and with them all that
    # is not ASCII.
    return text if text.replace("\n", "").isprintable() else _dump(document, allow_unicode=False)


def _dump(document: Any, *, allow_unicode: bool) -> str:
    return yaml.safe_dump(
        document, sort_keys=False, allow_unicode=allow_unicode, default_flow_style=False, width=100
    )
