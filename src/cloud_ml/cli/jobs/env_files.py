"""Files of environment variables (``--env-file``), in the form that Docker and dotenv share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from cloud_ml.errors import InvalidRequest
from cloud_ml.text_encoding import decode_text

_LARGEST_BYTES = 1 << 20
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SINGLE_QUOTED = re.compile(r"'([^']*)'(?:\s+#.*)?")
_DOUBLE_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"(?:\s+#.*)?')
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}


def read_env_file(path: Path, surroundings: Mapping[str, str]) -> dict[str, str]:
    """The variables of a file.

    A line is ``NAME=VALUE``, ``export NAME=VALUE``, or ``NAME`` alone, which passes the caller's
    variable on where it is set. Blank lines and lines that begin with ``#`` are comments, as is
    `` #`` behind a value. Quotes around a value are taken away; in double quotes ``\\n``, ``\\t``,
    ``\\r``, ``\\"`` and ``\\\\`` are escapes.

    Raises:
        InvalidRequest: The file cannot be read, or a line is malformed.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_BYTES + 1)
    except OSError as error:
        raise _refuse(path, f"cannot be read: {error.strerror or error}") from error
    return parse_env_file(path, content, surroundings)


def parse_env_file(path: Path, content: bytes, surroundings: Mapping[str, str]) -> dict[str, str]:
    """The variables that ``content`` sets; see ``read_env_file``."""
    if len(content) > _LARGEST_BYTES:
        raise _refuse(path, f"is larger than {_LARGEST_BYTES} bytes")
    try:
        text = decode_text(content)
    except UnicodeDecodeError as error:
        raise _refuse(path, f"is not UTF-8 text: {error.reason} at byte {error.start}") from error
    found: dict[str, str] = {}
    for number, line in enumerate(re.split(r"\r?\n", text), 1):
        entry = line.strip()
        if not entry or entry.startswith("#"):
            continue
        name, equals, value = entry.removeprefix("export ").partition("=")
        name = name.strip()
        if not _NAME.fullmatch(name):
            raise _refuse(path, f"line {number} is no variable")
        if equals:
            found[name] = _value_of(value.strip())
        elif name in surroundings:
            found[name] = surroundings[name]
    return found


def _value_of(text: str) -> str:
    if quoted := _SINGLE_QUOTED.fullmatch(text):
        return quoted[1]
    if quoted := _DOUBLE_QUOTED.fullmatch(text):
        return _unescape(quoted[1])
    return re.split(r"\s+#", text, maxsplit=1)[0] if not text.startswith("#") else ""


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[0]), text)


def _refuse(path: Path, what: str) -> InvalidRequest:
    return InvalidRequest(
        f"the file of variables {path} {what}",
        field="env-file",
        value=str(path),
        allowed="lines such as NAME=VALUE",
    )
