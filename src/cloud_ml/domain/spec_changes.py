"""What a change of a record changed, in words: from what to what. Holds no secret."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from cloud_ml.models.common import format_memory

_SECRET = re.compile(
    r"secret|password|token|keytab|sealed|cipher|content|hash|environment|variables|arguments|value",
    re.IGNORECASE,
)
"""Fields whose values are never told."""
_HISTORIES = frozenset({"earlier", "newest"})
"""Histories, which every change of a service moves on."""
_TRANSPARENT = frozenset({"submitted", "workload"})
"""Parts of a spec that its users do not see as such."""
_LONGEST_VALUE = 100
_UNLIMITED = -1


def describe_change(before: object, after: object) -> str:
    """Such as ``train.cpu: 16 → 32, train.memory: not set → 64G``; empty where nothing differs."""
    return ", ".join(_differences("", before, after))


def _differences(path: str, before: object, after: object) -> Iterator[str]:
    if before == after:
        return
    if is_dataclass(before) and type(before) is type(after):
        for field in fields(before):
            if field.name not in _HISTORIES:
                inner = path if field.name in _TRANSPARENT else _join_path(path, field.name)
                yield from _differences(
                    inner, getattr(before, field.name), getattr(after, field.name)
                )
    elif isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in sorted({*before, *after}, key=str):
            yield from _differences(_join_path(path, str(name)), before.get(name), after.get(name))
    elif _SECRET.search(path) or not (_is_plain(before) and _is_plain(after)):
        yield f"{path}: changed"
    else:
        name = re.sub(r"_(millis|bytes|s)$", "", path)
        yield f"{name}: {_text(path, before)} → {_text(path, after)}"


def _join_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, (str, int, float, datetime, Enum))


def _text(path: str, value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, (bool, Enum)):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return _amount(path, value)
    text = value.isoformat(timespec="seconds") if isinstance(value, datetime) else str(value)
    return (text[:_LONGEST_VALUE] + "…" if len(text) > _LONGEST_VALUE else text) or "empty"


def _amount(path: str, value: float) -> str:
    if value == _UNLIMITED:
        return "unlimited"
    if path.endswith("_millis"):
        return f"{value / 1000:g}"
    if path.endswith("_bytes"):
        return format_memory(int(value)) if value else "0"
    return f"{value:g}s" if path.endswith("_s") else f"{value}"
