"""The file of a runtime, read and checked. What each key means stands below the fields of
`Runtime`.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cloud_ml.environments.packages.requirements import BadRequirement, parse
from cloud_ml.environments.runtime import BadRuntime, Runtime

_UNITS = {"K": 1024, "M": 1024**2, "G": 1024**3}
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_PYTHON = re.compile(r"3\.\d{1,2}|\*")
_IMPORTS = re.compile(r"[A-Za-z_]\w*(\+[A-Za-z_]\w*)*")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_VARIABLE = re.compile(r"[A-Za-z_]\w*")
_OWN = f"{sys.version_info[0]}.{sys.version_info[1]}"
_COMPAT = Path(__file__).with_name("compat")


State = tuple[int, int, int]
"""What a file was like: number, size and time."""


def state_of(path: str) -> State:
    """What the file of a runtime is like now.

    Raises:
        BadRuntime: It cannot be looked at.
    """
    try:
        facts = os.stat(path)  # noqa: PTH116 - a dozen at each start of a job
    except OSError as error:
        raise BadRuntime(f"{path}: {error}") from error
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


@functools.lru_cache(maxsize=256)
def read(file: Path, state: State, pythons: tuple[str, ...] = ()) -> tuple[Runtime, ...]:
    """What ``file`` offers: one runtime, or with ``python = "*"`` one for each interpreter.

    A file is parsed once as long as it stays as it is, here and in every process forked from here.

    Raises:
        BadRuntime: It cannot be used; the message names file, key, value and what is allowed.
    """
    del state  # what the file was like belongs to the question
    try:
        text = file.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise BadRuntime(f"{file}: {error}") from error
    own = _parse_runtime(file, text, _OWN)
    if own.python != "*":
        return (own,)
    others = (
        replace(_parse_runtime(file, text, minor), python=minor)
        for minor in pythons
        if minor != _OWN
    )
    return (
        replace(own, python=None),
        *(replace(one, default=False, accepts=(f"{one.python}.*",)) for one in others),
    )


def _parse_runtime(file: Path, text: str, python: str) -> Runtime:
    try:
        document = tomllib.loads(text.replace("{python}", python))
    except (ValueError, RecursionError) as error:
        raise BadRuntime(f"{file}: {error}") from error
    if unknown := sorted(set(document) - set(KEYS)):
        raise BadRuntime(f"{file}: unknown key {unknown[0]!r}; allowed: {', '.join(KEYS)}")
    if missing := sorted({"name", "version"} - set(document)):
        raise BadRuntime(f"{file}: the key {missing[0]!r} is missing")
    return Runtime(**{key: _value(file, key, value) for key, value in document.items()})


def _value(file: Path, key: str, value: Any) -> Any:
    """One key's value in its own type."""
    allowed, kind, each = KEYS[key]
    if not kind(value):
        raise BadRuntime(f"{file}: {key} is {value!r}; allowed: {allowed}")
    if key == "base_memory":
        return value if isinstance(value, int) else int(value[:-1]) * _UNITS[value[-1]]
    entries = (
        value if isinstance(value, list) else list(value) if isinstance(value, dict) else [value]
    )
    if each is not None and (wrong := [entry for entry in entries if not each(entry)]):
        raise BadRuntime(f"{file}: {key} holds {wrong[0]!r}; allowed: {allowed}")
    return tuple(value) if isinstance(value, list) else value


def _is_requirement(text: str) -> bool:
    try:
        return not parse(text).url
    except BadRequirement:
        return False


def _is_index(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme == "file" or (parts.scheme in ("https", "http") and bool(parts.hostname))


def _text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(_text(entry) for entry in value)


def _table(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(entry, str) for entry in value.values())


def _flag(value: object) -> bool:
    return isinstance(value, bool)


def _rank(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 1000


def _bytes(value: object) -> bool:
    if isinstance(value, str):
        return value[-1:] in _UNITS and value[:-1].isdigit()
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_compat(text: str) -> bool:
    return _NAME.fullmatch(text) is not None and (_COMPAT / text).is_dir()


KEYS: Mapping[str, tuple[str, Callable[[Any], bool], Callable[[str], object] | None]] = {
    "name": ("a string of a-z, 0-9, '.', '_' and '-'", _text, _NAME.fullmatch),
    "version": ("a string", _text, None),
    "accepts": ("a list of strings", _texts, None),
    "aliases": ("a list of strings of a-z, 0-9, '.', '_' and '-'", _texts, _NAME.fullmatch),
    "default": ("true or false", _flag, None),
    "summary": ("a string", _text, None),
    "python": ("a version such as 3.12, or * for every interpreter", _text, _PYTHON.fullmatch),
    "requires": ("a list of strings such as 'numpy>=2'", _texts, _is_requirement),
    "imports": ("a list of strings such as 'torch' or 'keras+torch'", _texts, _IMPORTS.fullmatch),
    "distributions": ("a list of strings such as 'scikit-learn'", _texts, _is_requirement),
    "rank": ("a number from 0 to 1000", _rank, None),
    "provides": ("a table of strings", _table, None),
    "lenient": ("true or false", _flag, None),
    "constraints": ("a list of strings such as 'numpy<3'", _texts, _is_requirement),
    "indexes": ("a list of strings, each a https, http or file address", _texts, _is_index),
    "forbids": ("a list of strings such as 'nvidia-*'", _texts, None),
    "compat": (
        "a list of strings, each a folder of environments/compat",
        _texts,
        _is_compat,
    ),
    "base_memory": ("bytes, or a number with K, M or G", _bytes, None),
    "environment": ("a table of strings", _table, _VARIABLE.fullmatch),
    "threads": ("a list of strings, each a name of a variable", _texts, _VARIABLE.fullmatch),
    "preload": (
        "a list of modules such as 'torch' or 'sklearn.linear_model'",
        _texts,
        _MODULE.fullmatch,
    ),
}
"""Key → what is allowed in words, the check of the value, and the check of each entry."""
