"""Rules of fields that several wire types share: names, amounts of cpu and memory, durations, URIs.

Each ``check_*`` returns the value in its canonical form or raises ``InvalidRequest`` naming the
field, the value and what is allowed.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Container, Iterable, Mapping
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

from cloud_ml.errors import InvalidRequest
from cloud_ml.models import suggestions

Converters = Mapping[str, Callable[[str, Any], Any]]
"""For a field, what checks its value and returns it in its canonical form."""
NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
NAME_ALLOWED = "lower-case letters, digits and '-', starting and ending with a letter or digit, at most 63 characters"
_CPU = re.compile(r"[0-9]+(\.[0-9]{1,2})?")
_MEMORY = re.compile(r"([0-9]+(?:\.[0-9]{1,2})?)([KMG])")
_LONGEST_S = 100 * 366 * 86400
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_NOT_IN_KEYS = re.compile(r"[\x00-\x1f\\\x7f]")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_IDEMPOTENCY_KEY = re.compile(r"[!-~]{1,255}")
_MODULE = re.compile(r"\w[\w-]*(\.\w[\w-]*)*", re.ASCII)
"""``python -m`` runs more than ``import`` can name: ``train-model.py``, ``01_prepare.py``."""
_LARGEST_NUMBER = 2**64
MOST_LABELS, LONGEST_LABEL_NAME, LONGEST_LABEL_VALUE = 64, 100, 256
"""Labels of a record, and characters of a label's name and value."""
MOST_VARIABLES = 2000
"""Environment variables of a job: the sandbox takes some 2,900 in all."""
LONGEST_WORD = 128
"""Characters of a text that is a word under which records are found, such as a framework's name."""
_UNIT_BYTES = {"K": 2**10, "M": 2**20, "G": 2**30}


class ObjectUri(NamedTuple):
    """``fds://bucket/key``, parsed. ``key`` is empty for the bucket itself and never starts with
    '/'.
    """

    bucket: str
    key: str

    def __str__(self) -> str:
        return f"fds://{self.bucket}/{self.key}"


def format_value(value: Any, limit: int = 120) -> str:
    """``value`` as a message shows it, in at most ``limit`` characters."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no integer of more than some thousand digits
        return "a number of too many digits" if isinstance(value, int) else "too large to be shown"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def with_article(noun: str) -> str:
    """``a user``, ``an organisation``. For nouns of ours: it knows no ``hour``."""
    vowel = noun[:1].lower() in "aeiou" and not noun.lower().startswith(("us", "uni", "ur"))
    return f"{'an' if vowel else 'a'} {noun}"


def refuse(field: str, value: Any, allowed: str, *, suggestion: str = "") -> InvalidRequest:
    """The error for ``value`` in ``field``, ready to be raised, with a ``suggestion`` for the
    caller.
    """
    return InvalidRequest(
        f"{field} is {format_value(value)}; allowed is {allowed}",
        field=field,
        value=value,
        allowed=allowed,
        hint=f"Did you mean {suggestion}?" if suggestion else None,
    )


def check_name(field: str, value: Any) -> str:
    """A resource's name, as in RFC 1123 labels."""
    if not isinstance(value, str) or len(value) > 63 or not NAME.fullmatch(value):
        raise refuse(field, value, NAME_ALLOWED, suggestion=suggestions.name(value))
    return value


def check_module(field: str, value: Any) -> str:
    """A dotted Python module name such as ``trainer.task``."""
    if not isinstance(value, str) or len(value) > 256 or not _MODULE.fullmatch(value):
        raise refuse(
            field,
            value,
            "a Python module name such as trainer.task",
            suggestion=suggestions.module(value),
        )
    return value


def check_text(field: str, value: Any, *, limit: int = 4096, allow_empty: bool = False) -> str:
    """Free text of at most ``limit`` characters without NUL and without halves of surrogate
    pairs.
    """
    if (
        not isinstance(value, str)
        or (not value and not allow_empty)
        or len(value) > limit
        or "\x00" in value
        or not is_unicode(value)
    ):
        allowed = f"a Unicode text of at most {limit} characters without NUL" + (
            "" if allow_empty else ", not empty"
        )
        raise refuse(field, value, allowed)
    return value


_SEVERAL = re.compile(r"[\w.-]+\s+[A-Za-z0-9]")
"""Two words: behind a name, a version begins with a sign."""
_MOST_REQUIREMENTS, _LONGEST_REQUIREMENT = 200, 500


def check_requirements(field: str, values: Any) -> list[str]:
    """Requirements of packages, one line each; what they mean is decided where they are
    installed.
    """
    if not isinstance(values, list) or len(values) > _MOST_REQUIREMENTS:
        raise refuse(
            field, values, f'a list of at most {_MOST_REQUIREMENTS} texts such as "numpy>=2"'
        )
    for number, value in enumerate(values):
        one = f"{field}[{number}]"
        text = check_text(one, value, limit=_LONGEST_REQUIREMENT)
        if not text.isprintable() or not (text[0].isascii() and text[0].isalnum()):
            raise refuse(one, value, "a package on one line, such as numpy or numpy>=2")
        if _SEVERAL.match(text):
            raise refuse(one, value, "one package, such as numpy or numpy>=2; name each by itself")
    return values


def is_unicode(text: str) -> bool:
    """Whether a text has no half of a surrogate pair: JSON lets them through, no file and no
    database holds them.
    """
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_labels(field: str, value: Any) -> dict[str, str]:
    """Labels: words under which a record is found, so that a database can keep them in an index.

    Bytes count beside characters: an index of PostgreSQL takes some 2,700 bytes a row, and a name
    is kept percent-encoded.
    """
    if not isinstance(value, dict):
        raise refuse(field, value, "an object of name: text")
    if len(value) > MOST_LABELS:
        raise refuse(field, f"{len(value)} labels", f"at most {MOST_LABELS} labels")
    for name, text in value.items():
        check_text(f"{field}.{str(name)[:LONGEST_LABEL_NAME]}", name, limit=LONGEST_LABEL_NAME)
        check_text(f"{field}.{name}", text, limit=LONGEST_LABEL_VALUE, allow_empty=True)
    return dict(value)


def check_cpu(field: str, value: Any) -> str:
    """Cores as decimal text with at most two decimals, above zero. Numbers are accepted and
    turned to text.
    """
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= 4096
    text = f"{value:g}" if number else value
    if (
        not isinstance(text, str)
        or len(text) > 32
        or not _CPU.fullmatch(text)
        or Decimal(text) == 0
        or Decimal(text) > 4096
    ):
        raise refuse(
            field,
            value,
            "cores above 0 with at most two decimals, such as 0.5 or 2",
            suggestion=suggestions.cpu(value),
        )
    return text


def cpu_millis(text: str) -> int:
    """``"0.5"`` is 500."""
    return int(Decimal(text) * 1000)


def check_memory(field: str, value: Any) -> str:
    """A decimal number with at most two decimals and one of K, M, G (powers of 1024), above
    zero.
    """
    match = _MEMORY.fullmatch(value) if isinstance(value, str) and len(value) < 24 else None
    if not match or Decimal(match[1]) == 0:
        allowed = "a number above 0 followed by K, M or G, such as 100M or 1.5G"
        raise refuse(field, value, allowed, suggestion=suggestions.memory(value))
    return str(value)


def memory_bytes(text: str) -> int:
    """``"1.5G"`` is 1610612736."""
    return int(Decimal(text[:-1]) * _UNIT_BYTES[text[-1]])


def format_memory(count: int) -> str:
    """Bytes in the largest unit that keeps the number at or above one: ``104857600`` is
    ``100M``.
    """
    for unit in ("G", "M", "K"):
        if count >= _UNIT_BYTES[unit]:
            return f"{count / _UNIT_BYTES[unit]:.2f}".rstrip("0").rstrip(".") + unit
    return f"{count}B"


def check_count(field: str, value: Any, *, least: int = 1, most: int = 10_000) -> int:
    """A whole number between ``least`` and ``most``. Digits as text are accepted."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise refuse(field, value, f"a whole number from {least} to {most}")
    return value


def check_duration(field: str, value: Any) -> str:
    """A duration such as ``90s``, ``30m``, ``2h``, ``1d12h``; a bare number means seconds."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if isinstance(text, str) and text.isascii() and text.isdigit():
        text += "s"
    if not isinstance(text, str) or len(text) > 32 or not 0 < duration_seconds(text) <= _LONGEST_S:
        raise refuse(
            field,
            value,
            "a duration above 0 and below 100 years, such as 90s, 30m, 2h or 1d12h",
            suggestion=suggestions.duration(value),
        )
    return text


def check_grace(field: str, value: Any) -> str:
    """A duration as ``check_duration`` takes it, or ``0`` for none at all."""
    if value in (0, "0", "0s") and not isinstance(value, bool):
        return "0s"
    return check_duration(field, value)


def duration_seconds(text: str) -> int:
    """``"1d12h"`` is 129600; text that is no duration is 0."""
    match = _DURATION.fullmatch(text) if len(text) <= 32 else None
    days, hours, minutes, seconds = (
        (int(part or 0) for part in match.groups()) if match else (0, 0, 0, 0)
    )
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def duration_text(seconds: float) -> str:
    """129600 is ``"1d12h"``: the form that users write. Parts of a second are kept."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = ((days, "d"), (hours, "h"), (minutes, "m"), (rest, "s"))
    return "".join(f"{number:g}{unit}" for number, unit in parts if number) or "0s"


def as_texts(value: Any) -> Any:
    """Numbers and paths as text, also in lists and as values of a dictionary; others as they are."""
    if isinstance(value, (list, tuple)):
        return [as_text(one) for one in value]
    if isinstance(value, dict):
        return {name: as_text(one) for name, one in value.items()}
    return value


def as_text(value: Any) -> Any:
    """A number or a path as text. A bool is neither, since programs spell it differently."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if is_number and abs(value) < _LARGEST_NUMBER:
        return str(value)
    return value


def check_fields(owner: object, checks: Mapping[str, Callable[[str, Any], object]]) -> None:
    """Check the fields of ``owner`` that are set, in the order of ``checks``."""
    for name, check in checks.items():
        if (value := getattr(owner, name)) is not None:
            check(name, value)


def convert_fields(owner: object, converters: Converters, prefix: str = "") -> None:
    """Check the fields of ``owner`` that are set, and put what the check returns in their place.
    Errors name a field behind ``prefix``.
    """
    for name, convert in converters.items():
        if (value := getattr(owner, name)) is not None:
            setattr(owner, name, convert(f"{prefix}{name}", value))


def text_checks(
    names: Iterable[str], *, words: Container[str]
) -> dict[str, Callable[[str, Any], object]]:
    """A check for each of the fields ``names``: a text that may be empty; those in ``words`` are
    short, since records are found under them.
    """
    text = partial(check_text, allow_empty=True)
    word = partial(check_text, limit=LONGEST_WORD, allow_empty=True)
    return {name: word if name in words else text for name in names}


ARGUMENTS_ALLOWED = 'a list such as ["--lr", 0.1], or one text such as "--lr 0.1"'


def arguments_as_texts(field: str, value: Any) -> Any:
    """Arguments of a program with numbers and paths as texts."""
    if value is not None and not isinstance(value, (str, list, tuple)):
        raise refuse(field, value, ARGUMENTS_ALLOWED)
    return as_texts(value)


def check_arguments(field: str, value: Any) -> None:
    """Arguments of a program: a list of texts, or one text in shell quoting; ``None`` is none."""
    if isinstance(value, list):
        for place, argument in enumerate(value):
            if not isinstance(argument, str):
                raise refuse(f"{field}[{place}]", argument, "a text or a number")
            check_text(f"{field}[{place}]", argument, limit=65_536, allow_empty=True)
    elif value is not None:
        check_text(field, value, limit=65_536, allow_empty=True)
        try:
            shlex.split(value)
        except ValueError as error:
            raise InvalidRequest(
                f"{field} cannot be split into words: {str(error).lower()}",
                field=field,
                value=value,
                allowed="words in shell quoting, or a list of strings",
            ) from None


def arguments(value: str | list[str] | None) -> list[str]:
    """Checked arguments as a list, split as a POSIX shell splits words (nothing is expanded)."""
    return shlex.split(value) if isinstance(value, str) else list(value or ())


def check_environment(field: str, value: Any) -> dict[str, str]:
    """Environment variables: names as POSIX allows, values as text."""
    if not isinstance(value, dict):
        raise refuse(field, value, "an object of name: text")
    if len(value) > MOST_VARIABLES:
        raise refuse(field, f"{len(value)} variables", f"at most {MOST_VARIABLES} variables")
    for name, text in value.items():
        if not isinstance(name, str) or not _ENVIRONMENT_NAME.fullmatch(name):
            raise refuse(
                f"{field}.{name}",
                name,
                "a name of letters, digits and '_' that starts with no digit",
            )
        _check_variable(f"{field}.{name}", text)
    return dict(value)


def _check_variable(field: str, value: Any) -> None:
    """The value of a variable, which may be a secret: no message repeats a text."""
    try:
        check_text(field, value, limit=32_768, allow_empty=True)
    except InvalidRequest as error:
        if not isinstance(value, str):
            raise
        allowed = str(error.allowed)
        raise InvalidRequest(
            f"the value of {field} is not allowed", field=field, allowed=allowed
        ) from None


def check_idempotency_key(value: str | None) -> str | None:
    """What a client chose so that a request is carried out once."""
    if value is not None and not _IDEMPOTENCY_KEY.fullmatch(value):
        raise refuse("Idempotency-Key", value, "1 to 255 visible ASCII characters")
    return value


def check_bucket(field: str, value: Any) -> str:
    """A bucket's name: 3 to 63 of lower-case letters, digits, '.', '-'."""
    if not isinstance(value, str) or not _BUCKET.fullmatch(value) or ".." in value:
        raise refuse(
            field,
            value,
            "3 to 63 lower-case letters, digits, '.' or '-', with a letter or digit at both ends",
        )
    return value


def parse_object_uri(field: str, value: Any) -> ObjectUri:
    """Parse ``fds://bucket/key`` once and for all; what is compared later is the result, not the
    text.

    Raises:
        InvalidRequest: Another scheme, a bad bucket name, or a key with ``.``, ``..`` or empty
            segments, backslashes or control characters.
    """
    if not isinstance(value, str) or not value.startswith("fds://"):
        raise refuse(field, value, "fds://bucket/path")
    bucket, _, key = value[len("fds://") :].partition("/")
    if not bucket:
        raise refuse(field, value, "fds://bucket/path")
    check_bucket(field, bucket)
    return ObjectUri(bucket, check_key(field, key, whole=value))


def split_uri(uri: str) -> tuple[str, str]:
    """Bucket and key of a URI that was checked, or whose parts are looked at without trust."""
    bucket, _, key = uri.removeprefix("fds://").partition("/")
    return bucket, key


def check_key(field: str, key: str, *, whole: str | None = None) -> str:
    """An object's key that can be a path; one trailing '/' (a folder) is kept."""
    parts = key.removesuffix("/").split("/") if key else []
    try:
        bad = (
            any(part in ("", ".", "..") or len(part.encode()) > 255 for part in parts)
            or len(key.encode()) > 1024
        )
    except UnicodeEncodeError:  # lone surrogates: JSON lets them through, no path can hold them
        bad = True
    if bad or _NOT_IN_KEYS.search(key):
        raise refuse(
            field,
            whole if whole is not None else key,
            "a path without '.', '..' or empty segments, backslashes or control characters, "
            "at most 1024 bytes",
        )
    return key


RESOURCE_LIMITS: Converters = {
    "cpu_limit": check_cpu,
    "memory_limit": check_memory,
    "gpu_limit": partial(check_count, least=0, most=1024),
}
"""What a task or a replica may use, by its fields."""
