"""Constraints between parameters, such as ``layers * width <= 4096``: a language of its own.

A constraint is two sums or more with comparisons between them: ``<``, ``<=``, ``>``, ``>=``, ``==``
and ``!=``. A sum has numbers, names of parameters, ``+``, ``-``, ``*``, ``/`` and parentheses. Names
with characters of the language stand between backticks: `` `batch-size` < 64 ``. Nothing else can be
written, and a constraint is evaluated in a time that grows with its length.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from cloud_ml.domain.studies.space import Parameter
from cloud_ml.domain.studies.values import LONGEST_NAME, NAME
from cloud_ml.models.common import refuse

MOST_CONSTRAINTS, LONGEST_CONSTRAINT, DEEPEST = 20, 200, 20
"""Of a study; characters; parentheses and signs within each other."""
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_.]*|`[^`]+`)"
    r"|(?P<sign><=|>=|==|!=|[-+*/()<>]))",
    re.ASCII,
)
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_ARITHMETIC: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
_FORM = "a comparison of numbers and parameters with + - * /, such as 'a < b' or '2 * a <= b + 1'"
_NEGATE = "negate"


@dataclass(frozen=True)
class _Step:
    """A number, a name, or what is done with those before it (postfix)."""

    number: float | None = None
    name: str = ""
    sign: str = ""


@dataclass(frozen=True)
class Constraint:
    """One constraint. ``names`` are the parameters that it compares."""

    text: str
    sums: tuple[tuple[_Step, ...], ...]
    comparisons: tuple[str, ...]

    @property
    def names(self) -> Sequence[str]:
        """The parameters that it names, each once."""
        return list(dict.fromkeys(step.name for each in self.sums for step in each if step.name))

    @property
    def cost(self) -> int:
        """How many steps it takes to evaluate."""
        return sum(map(len, self.sums))

    def holds(self, parameters: Mapping[str, Any]) -> bool:
        """Whether these parameters keep it. Where one of its parameters is not active, it says
        nothing. A division by 0, or a number that is too large, breaks it.
        """
        if not all(name in parameters for name in self.names):
            return True
        try:
            values = [_value(each, parameters) for each in self.sums]
        except (ZeroDivisionError, OverflowError):
            return False
        if not all(map(math.isfinite, values)):
            return False
        pairs = zip(values, values[1:], self.comparisons, strict=False)
        return all(_COMPARISONS[sign](left, right) for left, right, sign in pairs)


def _value(steps: Sequence[_Step], parameters: Mapping[str, Any]) -> float:
    stack: list[float] = []
    for step in steps:
        if step.number is not None:
            stack.append(step.number)
        elif step.name:
            stack.append(float(parameters[step.name]))
        elif step.sign == _NEGATE:
            stack.append(-stack.pop())
        else:
            right = stack.pop()
            stack.append(_ARITHMETIC[step.sign](stack.pop(), right))
    return stack[0]


def parse_constraints(constraints: Sequence[Any], space: Sequence[Parameter]) -> tuple[str, ...]:
    """The constraints of a study, checked.

    Raises:
        InvalidRequest: There are too many, one is not written as they are, or one names something
            that is no parameter with numbers.
    """
    if len(constraints) > MOST_CONSTRAINTS:
        raise refuse("constraints", f"{len(constraints)} of them", f"at most {MOST_CONSTRAINTS}")
    known = {parameter.name: parameter for parameter in space}
    for number, text in enumerate(constraints):
        field = f"constraints[{number}]"
        if not isinstance(text, str) or len(text) > LONGEST_CONSTRAINT:
            raise refuse(field, text, f"a text of at most {LONGEST_CONSTRAINT} characters")
        try:
            found = parse_constraint(text)
        except ValueError as error:
            raise refuse(field, text, f"{_FORM}; {error}") from error
        if not found.names:
            raise refuse(field, text, "a comparison that names a parameter")
        for name in found.names:
            _check_name(field, text, name, known)
    return tuple(constraints)


def _check_name(field: str, text: str, name: str, known: Mapping[str, Parameter]) -> None:
    if name not in known:
        near = get_close_matches(name[:LONGEST_NAME], known, n=1)
        allowed = f"names of the space's parameters; {name[:LONGEST_NAME]} is none"
        raise refuse(field, text, allowed, suggestion=near[0] if near else "")
    if any(isinstance(value, (str, bool)) for value in known[name].values):
        raise refuse(field, text, f"parameters whose values are numbers; those of {name} are not")


def why_broken(texts: Sequence[str], parameters: Mapping[str, Any]) -> str:
    """The first constraint that these parameters do not keep, and their values; else nothing."""
    for constraint in constraints_of(tuple(texts)):
        if not constraint.holds(parameters):
            has = ", ".join(f"{name} is {parameters[name]:g}" for name in constraint.names)
            return f"{constraint.text} does not hold: {has}"
    return ""


@functools.lru_cache(64)
def constraints_of(texts: tuple[str, ...]) -> tuple[Constraint, ...]:
    """Constraints that were checked, to be evaluated."""
    return tuple(map(parse_constraint, texts))


def all_hold(texts: tuple[str, ...], parameters: Mapping[str, Any]) -> bool:
    """Whether these parameters keep all constraints."""
    return all(constraint.holds(parameters) for constraint in constraints_of(texts))


def parse_constraint(text: str) -> Constraint:
    """One constraint.

    Raises:
        ValueError: It is not written as they are; says where.
    """
    reader = _Reader(text)
    sums, comparisons = [tuple(reader.sum(0))], list[str]()
    while reader.peek() in _COMPARISONS:
        comparisons.append(reader.take())
        sums.append(tuple(reader.sum(0)))
    if reader.peek() or not comparisons:
        raise ValueError(reader.syntax_error("a comparison"))
    return Constraint(text, tuple(sums), tuple(comparisons))


class _Reader:
    """Reads the tokens of a constraint, and puts what is done behind what it is done with."""

    def __init__(self, text: str) -> None:
        self._tokens = [*_tokens(text), ("", "", len(text))]
        self._at = 0

    def peek(self) -> str:
        """The sign that comes next; empty if it is another token, or the end."""
        kind, token, _ = self._tokens[self._at]
        return token if kind == "sign" else kind

    def take(self) -> str:
        """The next token."""
        self._at += 1
        return self._tokens[self._at - 1][1]

    def syntax_error(self, expected: str) -> str:
        """What is wrong at the next token."""
        _, token, place = self._tokens[self._at]
        there = f"{token[:20]!r}" if token else "the end"
        return f"{expected} is expected at character {place + 1}, and there is {there}"

    def sum(self, depth: int) -> Iterator[_Step]:
        """Products with + and - between them."""
        yield from self._product(depth)
        while self.peek() in ("+", "-"):
            sign = self.take()
            yield from self._product(depth)
            yield _Step(sign=sign)

    def _product(self, depth: int) -> Iterator[_Step]:
        yield from self._factor(depth)
        while self.peek() in ("*", "/"):
            sign = self.take()
            yield from self._factor(depth)
            yield _Step(sign=sign)

    def _factor(self, depth: int) -> Iterator[_Step]:
        if depth > DEEPEST:
            raise ValueError(f"at most {DEEPEST} parentheses and signs may be within each other")
        match self.peek():
            case "number":
                yield _Step(number=float(self.take()))
            case "name":
                yield _Step(name=self.take().strip("`"))
            case "-":
                self.take()
                yield from self._factor(depth + 1)
                yield _Step(sign=_NEGATE)
            case "(":
                self.take()
                yield from self.sum(depth + 1)
                if self.peek() != ")":
                    raise ValueError(self.syntax_error("')'"))
                self.take()
            case _:
                raise ValueError(self.syntax_error("a number or a parameter"))


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
    """The kind, the text and the place of each token."""
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise ValueError(f"{text[at:].strip()[:20]!r} at character {at + 1} means nothing")
        token = match[match.lastgroup]
        if match.lastgroup == "name" and not NAME.fullmatch(token.strip("`")):
            raise ValueError(f"{token[:20]!r} at character {at + 1} is no name of a parameter")
        yield match.lastgroup, token, match.start(match.lastgroup)
        at = match.end()
