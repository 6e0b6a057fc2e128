"""What a caller may ask of logged models. Blocking."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from cloud_ml.domain.tenancy import Operation
from cloud_ml.domain.tracking.filters import OrderKey, Subject, parse_filter, parse_order
from cloud_ml.domain.tracking.matching import FilteredEntity, fulfils, in_order
from cloud_ml.domain.tracking.models import (
    LOGGED_MODEL,
    LoggedModelRecord,
    LoggedModelSpec,
    ModelState,
    facts_of_model,
)
from cloud_ml.domain.tracking.runs import LONGEST_TAG, RunStatus, TrackingLimits
from cloud_ml.errors import NotFound
from cloud_ml.models import common
from cloud_ml.settings.tracking import TrackingSettings
from cloud_ml.state import tracking_rules
from cloud_ml.state.base import Once, StateStore
from cloud_ml.usecases.access.identities import Identity
from cloud_ml.usecases.access.permissions import permit
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.record_limits import RecordLimits
from cloud_ml.usecases.tracking import checks
from cloud_ml.usecases.tracking.experiments import Experiments

_MOST_CHARACTERS = 100_000
_LOOKED_AT = 5000
"""Models that one search looks at."""
_COMPARED = 256
"""Characters of a text that count for an order: models may have long tags, and many are held."""


class LoggedModels:
    """Models of organisations. Those of another one look as absent as those that never were."""

    def __init__(
        self,
        store: StateStore,
        experiments: Experiments,
        clock: Clock,
        *,
        records: RecordLimits,
        settings: TrackingSettings,
    ) -> None:
        self._store = store
        self._experiments = experiments
        self._clock = clock
        self._records = records
        self._search_s = settings.search_s
        self._limits = TrackingLimits(
            settings.params_per_run, settings.tags_per_run, _MOST_CHARACTERS
        )

    def create(
        self, caller: Identity, spec: LoggedModelSpec, *, once: Once | None = None
    ) -> LoggedModelRecord:
        """Note a model whose files come next.

        Raises:
            Forbidden: The caller's role may not.
            InvalidRequest: A field is wrong.
            NotFound: There is no such experiment, or no such run.
            QuotaExceeded: The organisation has as many models as it may have.
        """
        permit(caller, Operation.RUN_JOBS)
        self._experiments.get(caller.org, spec.experiment)
        if spec.source_run:
            run = self._store.tracking.run(spec.source_run)
            if run is None or run.org != caller.org:
                raise tracking_rules.no_run(spec.source_run)
        self._check(spec)
        self._records.check(LOGGED_MODEL, caller.org, "logged models", spec)
        return self._store.create(
            LOGGED_MODEL,
            org=caller.org,
            name=f"m-{uuid.uuid4().hex}",
            owner=caller.user,
            spec=spec,
            status=RunStatus(),
            now=self._clock(),
            once=once,
        )

    def find(self, org: str, id_: str) -> LoggedModelRecord:
        """A model by its id.

        Raises:
            NotFound: There is none.
        """
        found = self._store.find(LOGGED_MODEL, org, id_)
        if found is None:
            shown = id_[:64]
            raise NotFound(f"there is no logged model {shown}", field="model_id", value=shown)
        return found

    def change(
        self,
        caller: Identity,
        id_: str,
        *,
        state: ModelState | None = None,
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
        removed_tags: Collection[str] = (),
        once: Once | None = None,
    ) -> LoggedModelRecord:
        """Change the state of a model, and add parameters and tags.

        Raises:
            Forbidden: The caller's role may not.
            InvalidRequest: A field is wrong.
            NotFound: There is none.
        """

        def changed(spec: LoggedModelSpec) -> LoggedModelSpec:
            kept = {key: value for key, value in spec.tags.items() if key not in removed_tags}
            after = replace(
                spec,
                state=state or spec.state,
                params={**spec.params, **(params or {})},
                tags={**kept, **(tags or {})},
            )
            self._check(after)
            return after

        return self._change(caller, id_, changed, once)

    def delete(self, caller: Identity, id_: str, *, once: Once | None = None) -> None:
        """Forget a model. Its files stay in the bucket.

        Raises:
            Forbidden: The caller's role may not.
            NotFound: There is none.
        """
        permit(caller, Operation.RUN_JOBS)
        uid = self.find(caller.org, id_).key.uid
        self._store.request_delete(LOGGED_MODEL, uid, now=self._clock(), once=once)
        self._store.delete(LOGGED_MODEL, uid, fence=None)

    def search(
        self,
        org: str,
        experiments: Collection[str],
        text: str = "",
        order: Sequence[str] = (),
        *,
        after: int | None = None,
        limit: int = 100,
    ) -> tuple[list[LoggedModelRecord], int | None]:
        """Models of some experiments that fulfil a filter, newest first, and the cursor of the next
        page. An order holds within 5,000 models.

        Raises:
            InvalidRequest: The filter or the order is wrong, or the search takes too long.
        """
        conditions = parse_filter(text, Subject.MODELS)
        keys = parse_order(order, Subject.MODELS)
        late = time.monotonic() + self._search_s
        found: list[_Found] = []
        looked_at, most, more = 0, _LOOKED_AT if keys else limit, True
        while more and looked_at < _LOOKED_AT and len(found) < most:
            page = self._store.list(LOGGED_MODEL, org=org, after=after, limit=100)
            more = page.next is not None
            for line in page.items:
                if time.monotonic() > late:
                    raise tracking_rules.search_too_long(self._search_s)
                record, after = self._store.get(LOGGED_MODEL, line.key.uid), line.number
                looked_at += 1
                if record is None or record.spec.experiment not in experiments:
                    continue
                facts = facts_of_model(record)
                if fulfils(facts, conditions):
                    found.append(_Found(line.key.uid, tuple(_compared(facts, key) for key in keys)))
                if len(found) == most:
                    more = True
                    break
        best = in_order(found, keys, lambda one, key: one.values[keys.index(key)])[:limit]
        records = [self._store.get(LOGGED_MODEL, one.uid) for one in best]
        return [record for record in records if record is not None], after if more else None

    def _change(
        self,
        caller: Identity,
        id_: str,
        changed: Callable[[LoggedModelSpec], LoggedModelSpec],
        once: Once | None,
    ) -> LoggedModelRecord:
        permit(caller, Operation.RUN_JOBS)
        uid = self.find(caller.org, id_).key.uid
        return self._store.change_spec(LOGGED_MODEL, uid, changed, now=self._clock(), once=once)

    def _check(self, spec: LoggedModelSpec) -> None:
        checks.check_run_name(spec.name)
        checks.check_value("model_type", spec.model_type, checks.LONGEST_NAME)
        checks.check_pairs("params", spec.params, checks.LONGEST_PARAM)
        checks.check_pairs("tags", spec.tags, LONGEST_TAG)
        for what, pairs in (("params", spec.params), ("tags", spec.tags)):
            tracking_rules.check_number(what, len(pairs), getattr(self._limits, what))
            tracking_rules.check_characters(what, pairs, self._limits.characters)


def model_state(value: Any) -> ModelState:
    """The state that a client names, by its name or number.

    Raises:
        InvalidRequest: There is no such state.
    """
    if isinstance(value, int) and 1 <= value <= len(ModelState):
        return list(ModelState)[value - 1]
    if not isinstance(value, str) or value not in set(ModelState):
        raise common.refuse("status", str(value)[:80], ", ".join(ModelState))
    return ModelState(value)


class _Found(NamedTuple):
    """A model that fulfils a filter, and what it is ordered by. Its record is not held."""

    uid: str
    values: tuple[Any, ...]


def _compared(facts: FilteredEntity, key: OrderKey) -> Any:
    values = facts.values(key.entity, key.key)
    first = values[0] if values else None
    return first[:_COMPARED] if isinstance(first, str) else first
