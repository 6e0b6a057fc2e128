"""The filter language of MLflow: a parser of our own.

It reads a text once from left to right, so its time is linear. Lengths and numbers are bounded
before anything is built. What comes out holds values only: a store binds them and pastes no text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, NoReturn

from cloud_ml.errors import InvalidRequest
from cloud_ml.models.common import is_unicode

LONGEST_FILTER = 65_536
MOST_COMPARISONS, MOST_VALUES, MOST_WILDCARDS, LONGEST_PATTERN = 50, 1000, 10, 1000
MOST_ORDER_KEYS = 10


class Entity(StrEnum):
    """What a comparison is about."""

    METRIC = "metrics"
    PARAM = "params"
    TAG = "tags"
    ATTRIBUTE = "attributes"
    DATASET = "datasets"


class Operator(StrEnum):
    """How it compares."""

    EQ = "="
    NE = "!="
    LT = "<"
    GT = ">"
    LE = "<="
    GE = ">="
    LIKE = "LIKE"
    ILIKE = "ILIKE"
    IN = "IN"
    NOT_IN = "NOT IN"
    IS_NULL = "IS NULL"
    IS_NOT_NULL = "IS NOT NULL"


ORDERED = (Operator.LT, Operator.GT, Operator.LE, Operator.GE)
_NULLS = (Operator.IS_NULL, Operator.IS_NOT_NULL)
_SETS = (Operator.IN, Operator.NOT_IN)
_PATTERNS = (Operator.LIKE, Operator.ILIKE)
_WITH_NUMBERS = frozenset({Operator.EQ, Operator.NE, *ORDERED, *_NULLS})
_WITH_TEXTS = frozenset({Operator.EQ, Operator.NE, *_PATTERNS, *_SETS, *_NULLS})
_WITH_DATASETS = _WITH_TEXTS - {*_NULLS}


@dataclass(frozen=True)
class Comparison:
    """One condition. ``value`` is a number, a text, several texts, or ``None`` beside ``IS NULL``."""

    entity: Entity
    key: str
    operator: Operator
    value: float | str | tuple[str, ...] | None = None


@dataclass(frozen=True)
class OrderKey:
    """One key of an order."""

    entity: Entity
    key: str
    ascending: bool = True


class Subject(StrEnum):
    """What is searched."""

    RUNS = "runs"
    EXPERIMENTS = "experiments"
    MODELS = "logged models"
    REGISTERED = "registered models"
    VERSIONS = "model versions"


_ENTITIES: Mapping[str, Entity] = {
    "metric": Entity.METRIC, "metrics": Entity.METRIC,
    "param": Entity.PARAM, "params": Entity.PARAM, "parameter": Entity.PARAM,
    "parameters": Entity.PARAM,
    "tag": Entity.TAG, "tags": Entity.TAG,
    "attribute": Entity.ATTRIBUTE, "attributes": Entity.ATTRIBUTE, "attr": Entity.ATTRIBUTE,
    "dataset": Entity.DATASET, "datasets": Entity.DATASET,
    "run": Entity.ATTRIBUTE, "runs": Entity.ATTRIBUTE, "model": Entity.ATTRIBUTE,
}  # fmt: skip
_ATTRIBUTES: Mapping[Subject, Mapping[str, str]] = {
    Subject.RUNS: {
        "run_id": "run_id", "run_uuid": "run_id", "id": "run_id",
        "run_name": "run_name", "run name": "run_name", "name": "run_name",
        "status": "status", "user_id": "user_id", "user": "user_id",
        "artifact_uri": "artifact_uri",
        "start_time": "start_time", "created": "start_time", "date": "start_time",
        "end_time": "end_time",
    },
    Subject.EXPERIMENTS: {
        "name": "name", "experiment_id": "experiment_id",
        "creation_time": "creation_time", "last_update_time": "last_update_time",
    },
    Subject.MODELS: {
        name: name
        for name in (
            "name", "model_id", "model_type", "status", "source_run_id", "experiment_id",
            "creation_timestamp", "last_updated_timestamp",
        )
    } | {"creation_time": "creation_timestamp"},
    Subject.REGISTERED: {
        name: name for name in ("name", "creation_timestamp", "last_updated_timestamp")
    },
    Subject.VERSIONS: {
        name: name
        for name in (
            "name", "version_number", "run_id", "source_path", "creation_timestamp",
            "last_updated_timestamp",
        )
    },
}  # fmt: skip
DATASET_KEYS = ("name", "digest", "context")
"""What a filter may look at of the data sets of a run."""
_WITH_TAGS_ONLY = (Subject.EXPERIMENTS, Subject.REGISTERED, Subject.VERSIONS)
NUMERIC = frozenset(
    {
        "start_time", "end_time", "creation_time", "last_update_time", "creation_timestamp",
        "last_updated_timestamp", "version_number",
    }
)  # fmt: skip
"""Attributes that are numbers."""
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<word>[^\s'"`(),=!<>]+)
      | (?P<tick>`[^`]*`)
      | (?P<double>"[^"]*")
      | (?P<single>'(?:[^']|'')*')
      | (?P<sign><=|>=|!=|<>|==|=|<|>)
      | (?P<mark>[(),])
    )""",
    re.VERBOSE,
)
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|[+-]?(?:inf|infinity)|nan")


class _Token(NamedTuple):
    kind: str
    text: str
    at: int
    glued: bool
    """Whether it follows the one before without a blank."""


def parse_filter(text: str, subject: Subject = Subject.RUNS) -> tuple[Comparison, ...]:
    """The conditions of a filter, which hold together; none for an empty text.

    Raises:
        InvalidRequest: It is no filter. Names the place and what is allowed there.
    """
    return _Reader(text, subject).comparisons()


def parse_order(texts: Sequence[str], subject: Subject = Subject.RUNS) -> tuple[OrderKey, ...]:
    """The keys of an order, such as ``metrics.loss ASC``.

    Raises:
        InvalidRequest: One is none.
    """
    if len(texts) > MOST_ORDER_KEYS:
        raise _refuse("order_by", f"{len(texts)} keys", f"at most {MOST_ORDER_KEYS} keys")
    return tuple(_Reader(text, subject, "order_by").order_key() for text in texts)


class _Reader:
    def __init__(self, text: str, subject: Subject, field: str = "filter") -> None:
        if len(text) > LONGEST_FILTER:
            raise _refuse(field, f"{len(text)} characters", f"at most {LONGEST_FILTER} characters")
        if "\x00" in text or not is_unicode(text):
            raise _refuse(field, "a character that is none", "Unicode text without NUL")
        self._text, self._subject, self._field = text, subject, field
        self._tokens = list(self._split())
        self._next = 0

    def comparisons(self) -> tuple[Comparison, ...]:
        found: list[Comparison] = []
        while self._next < len(self._tokens):
            if found:
                self._keyword("AND")
            if len(found) == MOST_COMPARISONS:
                raise _refuse(self._field, "more", f"at most {MOST_COMPARISONS} comparisons")
            found.append(self._comparison())
        return tuple(found)

    def order_key(self) -> OrderKey:
        entity, key = self._identifier()
        if entity is Entity.DATASET:
            self._wrong("metrics.NAME, params.NAME, tags.NAME or an attribute", self._next - 1)
        ascending = True
        if self._next < len(self._tokens):
            word = self._take("ASC or DESC").text.upper()
            if word not in ("ASC", "DESC"):
                self._wrong("ASC or DESC", self._next - 1)
            ascending = word == "ASC"
        if self._next < len(self._tokens):
            self._wrong("nothing more", self._next)
        return OrderKey(entity, key, ascending)

    def _split(self) -> list[_Token]:
        found: list[_Token] = []
        at, text = 0, self._text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None or match.lastgroup is None:
                shown = text[at : at + 40].strip()
                raise _refuse(self._field, shown, "a condition such as metrics.loss < 0.1", at=at)
            begin = match.start(match.lastgroup)
            glued = bool(found) and begin == at
            found.append(_Token(match.lastgroup, match[match.lastgroup], begin, glued))
            at = match.end()
        return found

    def _take(self, allowed: str) -> _Token:
        if self._next >= len(self._tokens):
            self._wrong(allowed, self._next)
        token = self._tokens[self._next]
        self._next += 1
        return token

    def _keyword(self, word: str) -> None:
        token = self._take(word)
        if token.kind != "word" or token.text.upper() != word:
            self._wrong(f"{word} (OR and parentheses are not part of the language)", self._next - 1)

    def _comparison(self) -> Comparison:
        entity, key = self._identifier()
        operator = self._operator()
        numeric = entity is Entity.METRIC or (entity is Entity.ATTRIBUTE and key in NUMERIC)
        allowed = _WITH_NUMBERS if numeric else _WITH_TEXTS
        if entity is Entity.DATASET:
            allowed = _WITH_DATASETS
        if operator not in allowed:
            words = ", ".join(one.value for one in Operator if one in allowed)
            self._wrong(f"one of {words} after {entity}.{key[:80]}", self._next - 1)
        if operator in _NULLS:
            return Comparison(entity, key, operator)
        if operator in _SETS:
            texts = self._texts()
            if entity is Entity.ATTRIBUTE:
                texts = tuple(_word(key, one) for one in texts)
            return Comparison(entity, key, operator, texts)
        if numeric:
            return Comparison(entity, key, operator, self._number())
        value = self._read_quoted()
        if operator in _PATTERNS:
            self._check_pattern(value)
            return Comparison(entity, key, operator, value)
        if entity is Entity.ATTRIBUTE:
            value = _word(key, value)
        return Comparison(entity, key, operator, value)

    def _identifier(self) -> tuple[Entity, str]:
        token = self._take("metrics.NAME, params.NAME, tags.NAME or an attribute")
        if token.kind in ("tick", "double"):
            return Entity.ATTRIBUTE, self._attribute(token.text[1:-1])
        if token.kind != "word":
            self._wrong("metrics.NAME, params.NAME, tags.NAME or an attribute", self._next - 1)
        head, dot, rest = token.text.partition(".")
        entity = _ENTITIES.get(head.lower())
        if not dot or entity is None:
            return Entity.ATTRIBUTE, self._attribute(token.text)
        if not rest:
            name = self._take(f"a name after {head}.")
            if name.kind not in ("tick", "double") or not name.glued:
                self._wrong(f"a name after {head}.", self._next - 1)
            rest = name.text[1:-1]
        if entity is Entity.ATTRIBUTE:
            return entity, self._attribute(rest)
        if entity is Entity.DATASET and (
            self._subject is not Subject.RUNS or rest not in DATASET_KEYS
        ):
            keys = ", ".join(f"dataset.{key}" for key in DATASET_KEYS)
            self._wrong(f"{keys} of runs, or another name", self._next - 1)
        if self._subject in _WITH_TAGS_ONLY and entity is not Entity.TAG:
            self._wrong("tags.NAME or an attribute", self._next - 1)
        return entity, rest

    def _attribute(self, name: str) -> str:
        known = _ATTRIBUTES[self._subject]
        if (found := known.get(name.lower())) is None:
            names = ", ".join(sorted(set(known.values())))
            self._wrong(f"metrics.NAME, params.NAME, tags.NAME, or one of {names}", self._next - 1)
        return found

    def _operator(self) -> Operator:
        token = self._take("an operator such as =")
        if token.kind == "sign":
            return Operator({"==": "=", "<>": "!="}.get(token.text, token.text))
        word = token.text.upper()
        if token.kind != "word" or word not in ("LIKE", "ILIKE", "IN", "NOT", "IS"):
            self._wrong("one of =, !=, <, >, <=, >=, LIKE, ILIKE, IN, NOT IN, IS", self._next - 1)
        if word == "NOT":
            self._keyword("IN")
            return Operator.NOT_IN
        if word != "IS":
            return Operator(word)
        after = self._take("NULL or NOT NULL")
        if after.kind == "word" and after.text.upper() == "NOT":
            self._keyword("NULL")
            return Operator.IS_NOT_NULL
        self._next -= 1
        self._keyword("NULL")
        return Operator.IS_NULL

    def _texts(self) -> tuple[str, ...]:
        self._mark("(")
        found = [self._read_quoted()]
        while self._take("',' or ')'").text == ",":
            if len(found) == MOST_VALUES:
                raise _refuse(self._field, "more", f"at most {MOST_VALUES} values beside IN")
            found.append(self._read_quoted())
        self._next -= 1
        self._mark(")")
        return tuple(found)

    def _mark(self, mark: str) -> None:
        token = self._take(mark)
        if token.kind != "mark" or token.text != mark:
            self._wrong(mark, self._next - 1)

    def _read_quoted(self) -> str:
        token = self._take("a text in quotes")
        if token.kind == "single":
            return token.text[1:-1].replace("''", "'")
        if token.kind != "double":
            self._wrong("a text in quotes, such as 'adam'", self._next - 1)
        return token.text[1:-1]

    def _number(self) -> float:
        token = self._take("a number")
        text = token.text[1:-1] if token.kind in ("single", "double") else token.text
        if not _NUMBER.fullmatch(text.lower()):
            self._wrong("a number", self._next - 1)
        value = float(text)
        if math.isnan(value):
            self._wrong("a number that is not NaN", self._next - 1)
        return value

    def _check_pattern(self, pattern: str) -> None:
        """A store tries each wildcard at each place of a value."""
        if len(pattern) > LONGEST_PATTERN or pattern.count("%") > MOST_WILDCARDS:
            at_most = f"a pattern of at most {LONGEST_PATTERN} characters and {MOST_WILDCARDS} '%'"
            self._wrong(at_most, self._next - 1)

    def _wrong(self, allowed: str, number: int) -> NoReturn:
        if number < len(self._tokens):
            token = self._tokens[number]
            raise _refuse(self._field, token.text[:80], allowed, at=token.at)
        raise _refuse(self._field, "the end", allowed, at=len(self._text))


def _word(key: str, value: str) -> str:
    """The value of an attribute as it is kept: states are in capitals, and people type ``finished``."""
    return value.upper() if key == "status" else value


def _refuse(field: str, found: str, allowed: str, *, at: int | None = None) -> InvalidRequest:
    place = "" if at is None else f" at character {at + 1}"
    return InvalidRequest(
        f"{field} has {found!r}{place}; allowed is {allowed}",
        field=field, value=found, allowed=allowed,
    )  # fmt: skip
