"""The fields of wire types, as programs give them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

C = TypeVar("C")
LIMIT_ALIASES: Mapping[str, str] = {
    "cpu": "cpu_limit",
    "cpus": "cpu_limit",
    "memory": "memory_limit",
    "mem": "memory_limit",
    "gpu": "gpu_limit",
    "gpus": "gpu_limit",
    "env": "environment",
}
"""Fields that jobs and services share, under the names that other tools have for them."""


def names_near(aliases: Mapping[str, str]) -> Callable[[type[C]], type[C]]:
    """A decorator of dataclasses: an unknown field is answered with the one that may be meant, also
    by the codec.

    Args:
        aliases: Fields by words that people use for them elsewhere, such as ``memory``.
    """

    def decorate(cls: type[C]) -> type[C]:
        made: Any = cls.__init__

        @functools.wraps(made)
        def init(self: Any, *values: Any, **fields: Any) -> None:
            known = cls.__dataclass_fields__  # type: ignore[attr-defined]
            for name in fields:
                if name not in known:
                    near = near_name(name, known, aliases)
                    raise TypeError(f"{cls.__name__} has no field {name!r}{near}")
            made(self, *values, **fields)

        cls.__init__ = init  # type: ignore[method-assign]
        cls.field_aliases = aliases  # type: ignore[attr-defined]
        return cls

    return decorate


def near_name(name: str, known: Collection[str], aliases: Mapping[str, str]) -> str:
    """The end of a sentence about an unknown name, such as ``; did you mean objective?``; empty if
    none is near.
    """
    near = aliases.get(name) or next(iter(get_close_matches(name, known, n=1)), "")
    return f"; did you mean {near}?" if near else ""


def check_options(
    call: str, options: Collection[str], known: Collection[str], aliases: Mapping[str, str]
) -> None:
    """Refuse an option that a call does not have.

    Args:
        call: As its user knows it, such as ``create_study``.
        options: The names that were given.
        known: Those that there are.
        aliases: Options by words that people use for them elsewhere.

    Raises:
        TypeError: Names the call, the option and the one that may be meant.
    """
    for name in options:
        if name not in known:
            raise TypeError(f"{call}() has no option {name!r}{near_name(name, known, aliases)}")


def check_type(value: object, expected: type) -> None:
    """Refuse an argument of another type, such as a name where a ``TrainJob`` is meant.

    Raises:
        TypeError: It is of another type.
    """
    if not isinstance(value, expected):
        name = expected.__name__
        raise TypeError(
            f"a {name} is expected, such as {name}({_example(expected)}); this is of type "
            f"{type(value).__name__}"
        )


def _example(expected: type) -> str:
    fields = dataclasses.fields(expected)
    needed = [each.name for each in fields if each.default is each.default_factory]
    return ", ".join(f"{name}=…" for name in needed)
