"""What a caller may ask of experiments. Blocking."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from cloud_ml.domain.tenancy import Operation
from cloud_ml.domain.tracking.filters import Entity, OrderKey, Subject, parse_filter, parse_order
from cloud_ml.domain.tracking.matching import facts_of_experiment, fulfils, in_order
from cloud_ml.domain.tracking.runs import (
    DEFAULT_EXPERIMENT,
    DEFAULT_NAME,
    LONGEST_TAG,
    Experiment,
    View,
)
from cloud_ml.errors import AlreadyExists, InvalidRequest, NotFound
from cloud_ml.models import common
from cloud_ml.settings.tracking import TrackingSettings
from cloud_ml.state import tracking_rules
from cloud_ml.state.base import Once, StateStore
from cloud_ml.usecases.access.identities import Identity
from cloud_ml.usecases.access.permissions import permit
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.tracking import checks

_DIGITS = 18
_MOST_TAGS, _NAMED = 200, 10


class Experiments:
    """Groups of runs. Those of another organisation look as absent as those that never were.

    The default experiment is there without being stored, until it is changed.
    """

    def __init__(self, store: StateStore, clock: Clock, settings: TrackingSettings) -> None:
        self._store = store
        self._clock = clock
        self._most = settings.experiments_per_org
        self._search_s = settings.search_s

    def create(
        self,
        caller: Identity,
        name: object,
        tags: Mapping[str, object],
        *,
        once: Once | None = None,
    ) -> Experiment:
        """Make an experiment.

        Raises:
            Forbidden: The caller's role may not.
            InvalidRequest: The name or a tag is wrong.
            AlreadyExists: The name is taken.
            QuotaExceeded: The organisation has as many as it may have.
        """
        permit(caller, Operation.RUN_JOBS)
        checked = _check_name(name)
        now = self._now()
        made = Experiment(_new_id(), caller.org, checked, now, now, tags=_check_tags(tags))
        if checked == DEFAULT_NAME:
            raise tracking_rules.experiment_taken(made)
        return self._store.tracking.add_experiment(made, most=self._most, once=once)

    def ensure(self, caller: Identity, name: str) -> Experiment:
        """The experiment of that name, made if there is none.

        Raises:
            InvalidRequest: The name is wrong.
            QuotaExceeded: The organisation has as many as it may have.
        """
        if (found := self.find_named(caller.org, name)) is not None:
            return found
        try:
            return self.create(caller, name, {})
        except AlreadyExists:  # made within the moment
            return self.named(caller.org, name)

    def get(self, org: str, id_: str) -> Experiment:
        """The experiment of that id.

        Raises:
            NotFound: There is none.
        """
        found = self._store.tracking.experiment(org, id_)
        if found is None and id_ == DEFAULT_EXPERIMENT:
            return Experiment(DEFAULT_EXPERIMENT, org, DEFAULT_NAME)
        if found is None:
            raise tracking_rules.no_experiment(id_)
        return found

    def find_named(self, org: str, name: str) -> Experiment | None:
        """The experiment of that name, if there is one."""
        found = self._store.tracking.find_experiment(org, name)
        if found is None and name == DEFAULT_NAME:
            default = self.get(org, DEFAULT_EXPERIMENT)
            return default if default.name == name else None
        return found

    def named(self, org: str, name: str) -> Experiment:
        """The experiment of that name.

        Raises:
            NotFound: There is none.
        """
        if (found := self.find_named(org, name)) is not None:
            return found
        known = [one.name for one in self.all(org) if not one.deleted]
        shown = ", ".join(known[:_NAMED]) + (", …" if len(known) > _NAMED else "")
        raise NotFound(
            f"there is no experiment {name[:200]!r}",
            field="experiment", value=name[:200], allowed=f"one of {shown}",
        )  # fmt: skip

    def all(self, org: str) -> Sequence[Experiment]:
        """All experiments, newest first."""
        found = list(self._store.tracking.experiments(org))
        if not any(one.id == DEFAULT_EXPERIMENT for one in found):
            found.append(self.get(org, DEFAULT_EXPERIMENT))
        return found

    def page(
        self, org: str, *, after: str | None = None, limit: int = 50
    ) -> tuple[Sequence[Experiment], str | None]:
        """Experiments that are not deleted, newest first, and the ``after`` of the next page.

        Args:
            org: Whose.
            after: The id of the last one of the page before.
            limit: At most so many.

        Raises:
            InvalidRequest: There is no experiment ``after``.
        """
        left = self.all(org)
        if after is not None:
            ids = [one.id for one in left]  # of deleted ones, too: one may be deleted in between
            if after not in ids:
                raise common.refuse("after", after, "the `next` of the page before")
            left = left[ids.index(after) + 1 :]
        active = [one for one in left if not one.deleted]
        return active[:limit], active[limit - 1].id if len(active) > limit else None

    def search(
        self, org: str, text: str = "", order: Sequence[str] = (), view: View = View.ACTIVE
    ) -> Sequence[Experiment]:
        """The experiments that fulfil a filter; without an order, the newest first.

        Raises:
            InvalidRequest: The filter or the order is wrong.
        """
        conditions = parse_filter(text, Subject.EXPERIMENTS)
        keys = parse_order(order, Subject.EXPERIMENTS)
        found, late = [], time.monotonic() + self._search_s
        for one in self.all(org):
            if time.monotonic() > late:
                raise tracking_rules.search_too_long(self._search_s)
            if view.admits(deleted=one.deleted) and fulfils(facts_of_experiment(one), conditions):
                found.append(one)
        return in_order(found, keys, _order_value)

    def rename(
        self, caller: Identity, id_: str, name: object, *, once: Once | None = None
    ) -> Experiment:
        """Give an experiment another name.

        Raises:
            Forbidden: The caller's role may not.
            InvalidRequest: The name is wrong, or the experiment is deleted.
            NotFound: There is none.
            AlreadyExists: The name is taken.
        """
        checked = _check_name(name)

        def change(before: Experiment) -> Experiment:
            _check_active(before)
            return replace(before, name=checked)

        return self._change(caller, id_, once, change)

    def delete(self, caller: Identity, id_: str, *, once: Once | None = None) -> Experiment:
        """Hide an experiment and its runs from lists.

        Raises:
            Forbidden: The caller's role may not.
            InvalidRequest: It is the default one.
            NotFound: There is none.
        """
        if id_ == DEFAULT_EXPERIMENT:
            raise common.refuse("experiment_id", id_, "any but the default experiment")
        return self._change(caller, id_, once, lambda before: replace(before, deleted=True))

    def restore(self, caller: Identity, id_: str, *, once: Once | None = None) -> Experiment:
        """Show an experiment again that was deleted.

        Raises:
            Forbidden: The caller's role may not.
            NotFound: There is none.
        """
        return self._change(caller, id_, once, lambda before: replace(before, deleted=False))

    def tag(
        self,
        caller: Identity,
        id_: str,
        tags: Mapping[str, object],
        removed: Sequence[str] = (),
        *,
        once: Once | None = None,
    ) -> Experiment:
        """Set and remove tags.

        Raises:
            Forbidden: The caller's role may not.
            InvalidRequest: A tag is wrong.
            NotFound: There is none.
        """

        def change(before: Experiment) -> Experiment:
            _check_active(before)
            kept = {key: value for key, value in before.tags.items() if key not in removed}
            return replace(before, tags=_check_tags({**kept, **tags}))

        return self._change(caller, id_, once, change)

    def _change(
        self,
        caller: Identity,
        id_: str,
        once: Once | None,
        change: Callable[[Experiment], Experiment],
    ) -> Experiment:
        permit(caller, Operation.RUN_JOBS)
        now = self._now()
        return self._store.tracking.change_experiment(
            caller.org, id_, lambda before: replace(change(before), updated=now), once=once
        )

    def _now(self) -> int:
        return round(self._clock().timestamp() * 1000)


def _check_active(experiment: Experiment) -> None:
    if experiment.deleted:
        raise InvalidRequest(
            f"experiment {experiment.id} is deleted",
            field="experiment_id", value=experiment.id,
            allowed="an experiment that is active", hint="Restore it first.",
        )  # fmt: skip


def _new_id() -> str:
    """Digits, as MLflow's clients expect."""
    return str(secrets.randbelow(9 * 10 ** (_DIGITS - 1)) + 10 ** (_DIGITS - 1))


def _check_name(name: object) -> str:
    checked = checks.check_value("name", name, checks.LONGEST_NAME)
    if not checked.strip() or len(checked.encode()) > checks.LONGEST_NAME * 2:
        raise common.refuse("name", checked[:80], f"1 to {checks.LONGEST_NAME} characters")
    return checked


def _check_tags(tags: Mapping[str, object]) -> dict[str, str]:
    checked = checks.check_pairs("tags", tags, LONGEST_TAG)
    size = sum(len(key.encode()) + len(value.encode()) for key, value in checked.items())
    if len(checked) > _MOST_TAGS or size > checks.MOST_TAG_BYTES:
        at_most = f"at most {_MOST_TAGS} tags of {checks.MOST_TAG_BYTES} bytes together"
        raise common.refuse("tags", f"{len(checked)} tags of {size} bytes", at_most)
    return checked


def _order_value(experiment: Experiment, key: OrderKey) -> object:
    values = facts_of_experiment(experiment).values(Entity(key.entity), key.key)
    return values[0] if values else None
