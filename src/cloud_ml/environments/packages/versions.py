"""Enough of PEP 440 to answer whether a release satisfies a specifier.

Only what the platform itself must know before a resolver is asked (is a pin on TensorFlow met by
the runtime's?). Everything else is the resolver's.
"""

from __future__ import annotations

import re

_RELEASE = re.compile(r"^\s*v?(?:\d+!)?(\d{1,18}(?:\.\d{1,18})*)(?!\d)(.*)$", re.ASCII)
_CLAUSE = re.compile(r"^\s*(~=|===|==|!=|<=|>=|<|>)\s*([^\s]+)\s*$")


def release(version: str) -> tuple[int, ...]:
    """The numbers of ``version``: ``(2, 21, 0)`` for ``2.21.0rc1``; empty when it has none."""
    found = _RELEASE.match(version)
    return tuple(int(part) for part in found.group(1).split(".")) if found else ()


def satisfies(version: str, specifier: str) -> bool:
    """Whether ``version`` meets every clause of ``specifier`` such as ``>=1.0,<2``.

    Pre-releases and local versions count as their release. A clause that cannot be read counts as
    met:
    the resolver will speak up.
    """
    return all(
        _meets(release(version), clause) for clause in specifier.split(",") if clause.strip()
    )


def _meets(have: tuple[int, ...], clause: str) -> bool:
    found = _CLAUSE.match(clause)
    if not found:
        return True
    operator, target = found.groups()
    if not release(target):
        return True
    if target.endswith(".*"):
        prefix = release(target[:-2])
        return (_pad_numbers(have, len(prefix))[: len(prefix)] == prefix) == (operator != "!=")
    want = release(target)
    width = max(len(have), len(want))
    left, right = _pad_numbers(have, width), _pad_numbers(want, width)
    if operator == "~=":
        return left >= right and left[: len(want) - 1] == want[:-1]
    return {
        "==": left == right,
        "===": left == right,
        "!=": left != right,
        "<=": left <= right,
        ">=": left >= right,
        "<": left < right,
        ">": left > right,
    }[operator]


def _pad_numbers(numbers: tuple[int, ...], width: int) -> tuple[int, ...]:
    return numbers + (0,) * (width - len(numbers))
