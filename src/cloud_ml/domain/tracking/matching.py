"""Whether a run or an experiment fulfils a filter, and in which order they stand."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from cloud_ml.domain.tracking.filters import Comparison, Entity, Operator, OrderKey
from cloud_ml.domain.tracking.runs import Experiment

T = TypeVar("T")
_COMPARE: Mapping[Operator, Callable[[Any, Any], bool]] = {
    Operator.EQ: operator.eq,
    Operator.NE: operator.ne,
    Operator.LT: operator.lt,
    Operator.GT: operator.gt,
    Operator.LE: operator.le,
    Operator.GE: operator.ge,
}


@dataclass(frozen=True)
class FilteredEntity:
    """What a filter may look at. A metric has the last value of each task, and a run several data
    sets.
    """

    attributes: Mapping[str, Any]
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, Sequence[float]] = field(default_factory=dict)
    datasets: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def has(self, entity: Entity, key: str) -> bool:
        """Whether there is such a value, were it NaN."""
        return bool(self.metrics.get(key) if entity is Entity.METRIC else self.values(entity, key))

    def values(self, entity: Entity, key: str) -> Sequence[Any]:
        """The values that there are, none of them NaN."""
        if entity is Entity.METRIC:
            return [value for value in self.metrics.get(key, ()) if not math.isnan(value)]
        if entity is Entity.DATASET:
            return self.datasets.get(key, ())
        sources = {Entity.PARAM: self.params, Entity.TAG: self.tags}
        value = sources.get(entity, self.attributes).get(key)
        return () if value is None else (value,)


def fulfils(facts: FilteredEntity, conditions: Iterable[Comparison]) -> bool:
    """Whether all conditions hold."""
    return all(_holds(facts, one) for one in conditions)


def compares(value: Any, comparison: Comparison) -> bool:
    """Whether one value that is there fulfils a condition."""
    against, how = comparison.value, comparison.operator
    if how in (Operator.LIKE, Operator.ILIKE):
        return _like(str(value), str(against), ignore_case=how is Operator.ILIKE)
    if how is Operator.IN:
        return isinstance(against, tuple) and value in against
    if how is Operator.NOT_IN:
        return isinstance(against, tuple) and value not in against
    if how in (Operator.IS_NULL, Operator.IS_NOT_NULL):
        return how is Operator.IS_NOT_NULL
    return _COMPARE[how](value, against)


def _holds(facts: FilteredEntity, one: Comparison) -> bool:
    if one.operator in (Operator.IS_NULL, Operator.IS_NOT_NULL):
        return facts.has(one.entity, one.key) is (one.operator is Operator.IS_NOT_NULL)
    return any(compares(value, one) for value in facts.values(one.entity, one.key))


def lower(text: str) -> str:
    """In small ASCII letters, as every database can do."""
    return re.sub("[A-Z]+", lambda found: found[0].lower(), text)


def _like(value: str, pattern: str, *, ignore_case: bool) -> bool:
    """Whether a text has the form of a pattern: ``%`` for any text, ``_`` for any character.

    Each part between two ``%`` is looked for behind the one before, at its first place.
    """
    if ignore_case:
        value, pattern = lower(value), lower(pattern)
    # A single expression with .* for each % could backtrack for a very long time on some texts.
    first, *others = [
        "".join("." if letter == "_" else re.escape(letter) for letter in part)
        for part in pattern.split("%")
    ]
    if not others:
        return re.fullmatch(first, value, re.DOTALL) is not None
    found = re.match(first, value, re.DOTALL)
    for part in others[:-1]:
        if found is None:
            return False
        found = re.compile(part, re.DOTALL).search(value, found.end())
    if found is None:
        return False
    last = re.compile(f"(?:{others[-1]})\\Z", re.DOTALL)
    length = len(pattern.rpartition("%")[2])
    return len(value) - length >= found.end() and bool(last.match(value, len(value) - length))


def in_order(
    items: Iterable[T], keys: Sequence[OrderKey], values: Callable[[T, OrderKey], Any]
) -> list[T]:
    """Sorted by the keys; what lacks one stands last."""
    found = list(items)
    # Sort by the last key first: sorts are stable.
    for key in reversed(keys):
        there = [item for item in found if values(item, key) is not None]
        lacking = [item for item in found if values(item, key) is None]
        there.sort(key=lambda item, key=key: values(item, key), reverse=not key.ascending)  # type: ignore[misc]
        found = [*there, *lacking]
    return found


def facts_of_experiment(experiment: Experiment) -> FilteredEntity:
    """What a filter may look at of an experiment."""
    return FilteredEntity(
        {
            "name": experiment.name,
            "experiment_id": experiment.id,
            "creation_time": experiment.created,
            "last_update_time": experiment.updated,
        },
        tags=experiment.tags,
    )
