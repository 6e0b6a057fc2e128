"""Searches in the registry of models. Blocking."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from cloud_ml.domain.records import Record
from cloud_ml.domain.tracking.filters import (
    Comparison,
    Entity,
    Operator,
    OrderKey,
    Subject,
    parse_filter,
    parse_order,
)
from cloud_ml.domain.tracking.matching import FilteredEntity, fulfils, in_order
from cloud_ml.domain.tracking.registry import (
    MODEL_VERSION,
    REGISTERED_MODEL,
    ModelRecord,
    ModelVersion,
    VersionRecord,
    describe_version,
    facts_of_registered,
    facts_of_version,
    id_tag,
    model_tag,
    run_tag,
)
from cloud_ml.settings.tracking import TrackingSettings
from cloud_ml.state import tracking_rules
from cloud_ml.state.base import StateStore
from cloud_ml.state.matching import EVERYTHING, Match

_LOOKED_AT, _TOGETHER = 5000, 100
"""Records that one search looks at: the newest ones."""
_COMPARED = 256
_BY_NAME = (OrderKey(Entity.ATTRIBUTE, "name"),)
_NEWEST = (OrderKey(Entity.ATTRIBUTE, "last_updated_timestamp", ascending=False),)


class RegistrySearch:
    """Finds models and versions by filters. A search looks at the newest 5,000 of them."""

    def __init__(self, store: StateStore, settings: TrackingSettings) -> None:
        self._store = store
        self._search_s = settings.search_s

    def models(
        self, org: str, text: str = "", order: Sequence[str] = ()
    ) -> Sequence[tuple[str, ModelRecord | None]]:
        """The uids of models that fulfil a filter, by their names or in an order.

        Raises:
            InvalidRequest: The filter or the order is wrong, or the search takes too long.
        """
        conditions = parse_filter(text, Subject.REGISTERED)
        keys = parse_order(order, Subject.REGISTERED) or _BY_NAME
        found = self._matching(
            self._records(REGISTERED_MODEL, org, EVERYTHING), facts_of_registered, conditions, keys
        )
        return [(uid, self._store.get(REGISTERED_MODEL, uid)) for uid in found]

    def versions(self, org: str, text: str = "", order: Sequence[str] = ()) -> Sequence[str]:
        """The uids of versions that fulfil a filter, the last changed first or in an order.

        Raises:
            InvalidRequest: The filter or the order is wrong, or the search takes too long.
        """
        conditions = parse_filter(text, Subject.VERSIONS)
        keys = parse_order(order, Subject.VERSIONS) or _NEWEST
        names: dict[str, str] = {}

        def facts(record: VersionRecord) -> FilteredEntity:
            model = record.spec.model
            if model not in names:
                names[model] = self._name_of(org, model)
            return facts_of_version(record, names[model])

        match = self._narrowed(org, conditions)
        if match is None:
            return []
        return self._matching(self._records(MODEL_VERSION, org, match), facts, conditions, keys)

    def version(self, uid: str) -> ModelVersion | None:
        """A version that a search has found; ``None`` if it is gone by now."""
        record = self._store.get(MODEL_VERSION, uid)
        model = None if record is None else self._model(record.key.org, record.spec.model)
        if record is None or model is None:
            return None
        return describe_version(record, model)

    def _narrowed(self, org: str, conditions: Sequence[Comparison]) -> Match | None:
        """What a condition of equality on the name or the run narrows a search to."""
        for one in conditions:
            if one.entity is not Entity.ATTRIBUTE or one.operator is not Operator.EQ:
                continue
            if one.key == "run_id":
                return Match(tags=(run_tag(str(one.value)),))
            if one.key == "name":
                model = self._store.find(REGISTERED_MODEL, org, str(one.value))
                return None if model is None else Match(tags=(model_tag(model.spec.id),))
        return EVERYTHING

    def _records(self, kind: Any, org: str, match: Match) -> Iterator[Any]:
        after, count = None, 0
        while count < _LOOKED_AT:
            page = self._store.list(kind, org=org, match=match, after=after, limit=_TOGETHER)
            for line in page.items:
                record = self._store.get(kind, line.key.uid)
                if record is not None:
                    yield record
            count += len(page.items)
            if (after := page.next) is None:
                return

    def _matching(
        self,
        records: Iterator[Record[Any, Any]],
        facts_of: Callable[[Any], FilteredEntity],
        conditions: Sequence[Comparison],
        keys: Sequence[OrderKey],
    ) -> list[str]:
        late = time.monotonic() + self._search_s
        found: list[tuple[str, tuple[Any, ...]]] = []
        for record in records:
            if time.monotonic() > late:
                raise tracking_rules.search_too_long(self._search_s)
            facts = facts_of(record)
            if fulfils(facts, conditions):
                found.append((record.key.uid, tuple(_compared(facts, key) for key in keys)))
        order = {id(key): number for number, key in enumerate(keys)}
        return [uid for uid, _ in in_order(found, keys, lambda one, key: one[1][order[id(key)]])]

    def _model(self, org: str, model: str) -> ModelRecord | None:
        match = Match(tags=(id_tag(model),))
        lines = self._store.list(REGISTERED_MODEL, org=org, match=match, limit=1).items
        return self._store.get(REGISTERED_MODEL, lines[0].key.uid) if lines else None

    def _name_of(self, org: str, model: str) -> str:
        record = self._model(org, model)
        return "" if record is None else record.key.name


def _compared(facts: FilteredEntity, key: OrderKey) -> Any:
    values = facts.values(key.entity, key.key)
    first = values[0] if values else None
    return first[:_COMPARED] if isinstance(first, str) else first
