"""A state store in memory: an honest fake. It keeps the same contract as the real ones, durability
apart.

Specs and statuses are kept as text, as a database would, so that what cannot be stored for real
cannot be stored here, and nobody can change a stored value from outside.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

from cloud_ml.domain.audit import AuditEntry, AuditFilter
from cloud_ml.domain.records import Event, Key, Kind, ParentRef, Record, Summary
from cloud_ml.domain.tracking.runs import NewRun
from cloud_ml.errors import CloudMlError, Unavailable
from cloud_ml.state import items, rules
from cloud_ml.state.base import Change, Fence, Lease, Once, Page, StateStore
from cloud_ml.state.lease_observations import LeaseObservations
from cloud_ml.state.matching import EVERYTHING, Match, all_tags
from cloud_ml.state.memory_metrics import MemoryMetricStore
from cloud_ml.state.memory_tracking import MemoryTrackingStore
from cloud_ml.state.metrics import RunWithPoints
from cloud_ml.state.wakeups import Wakeups

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Row:
    summary: Summary
    generation: int
    revision: int
    delete_requested_at: datetime | None
    spec: str
    status: str
    tags: frozenset[str]
    parent: ParentRef | None


class MemoryStateStore(StateStore):
    """Everything in dictionaries behind one lock. Fails on command: see ``fail_writes``."""

    def __init__(
        self,
        *,
        retention: rules.Retention = rules.RETENTION,
        clock: Callable[[], datetime] = rules.utc_now,
    ) -> None:
        self._retention = retention
        self._clock = clock
        # Reentrant, because writes also call ``find`` and ``get``.
        self._lock = threading.RLock()
        self._lease_observations = LeaseObservations()
        self._wakeups = Wakeups()
        self._rows: dict[str, _Row] = {}
        self._names: dict[tuple[str, str, str], str] = {}
        self._events: dict[str, list[Event]] = {}
        self._deletions: list[tuple[Change, datetime]] = []
        self._keys: dict[tuple[str, str, str], tuple[str, datetime]] = {}
        self._tokens: dict[str, datetime] = {}
        self._leases: dict[str, Lease] = {}
        self._audit: list[AuditEntry] = []
        self._audit_id = 0
        self._revision = 0
        self._event_id = 0
        self._failure: CloudMlError | None = None
        self._closed = False
        self.metrics: MemoryMetricStore = MemoryMetricStore(
            self._reading, self._writing, self._org_of, self._describe
        )
        self.tracking: MemoryTrackingStore = MemoryTrackingStore(
            self._reading,
            self._marking,
            self.metrics,
            self._lines,
            revision_of=lambda uid: self._rows[uid].revision,
            touch=lambda uid: self._update(self._rows[uid], self._clock(), ()).revision,
            notify=self._wakeups.notify,
        )

    def fail_writes(self, failure: CloudMlError | None) -> None:
        """Raise ``failure`` from every write until called with ``None``; reads go on, as on a
        full disk.
        """
        self._failure = failure

    def create(
        self,
        kind: Kind[S, T],
        *,
        org: str,
        name: str,
        owner: str,
        spec: S,
        status: T,
        now: datetime,
        title: str = "",
        events: Sequence[Event] = (),
        idempotency_key: str | None = None,
        once: Once | None = None,
        parent: ParentRef | None = None,
        run: NewRun | None = None,
    ) -> Record[S, T]:
        """See ``StateStore.create``."""
        texts = rules.to_text(kind.decode_spec, spec), rules.to_text(kind.decode_status, status)
        tags = all_tags(owner, parent, kind.spec_tags(spec), kind.status_tags(status))
        rules.check_names(tags, org=org, name=name, owner=owner)
        with self._writing():
            self._check_unseen(once)
            # Check the key before the name: on a retry, the name is taken by the request's own
            # record.
            if idempotency_key is not None and (
                made := self._keys.get((org, kind.name, idempotency_key))
            ):
                if (row := self._row(kind, made[0])) is None:
                    raise rules.record_gone(kind, idempotency_key)
                return _record(kind, row)
            if (taken := self.find(kind, org, name)) is not None:
                raise rules.name_taken(kind, org, name, spec, taken.spec)
            if parent is not None:
                row = self._rows.get(parent.uid)
                if row is None or row.summary.key.kind != parent.kind:
                    raise rules.no_parent(parent)
            key = Key(kind.name, org, name, rules.new_uid())
            revision = self._next_revision()
            line = Summary(
                key, owner, revision, kind.index_of(status), now, now, False, rules.printable(title)
            )
            row = self._put(_Row(line, 1, revision, None, *texts, tags, parent), events)
            if idempotency_key is not None:
                self._keys[org, kind.name, idempotency_key] = (key.uid, now)
            if run is not None:
                self.tracking.add(key.uid, run)
            self._use_up(once, name)
        # Notify outside of the lock, because subscribers read at once.
        self._wakeups.notify()
        return _record(kind, row)

    def has_made(self, kind: Kind[Any, Any], org: str, idempotency_key: str) -> bool:
        """See ``StateStore.has_made``."""
        with self._reading():
            return (org, kind.name, idempotency_key) in self._keys

    def get(self, kind: Kind[S, T], uid: str) -> Record[S, T] | None:
        """See ``StateStore.get``."""
        with self._reading():
            row = self._row(kind, uid)
        return None if row is None else _record(kind, row)

    def documents(
        self, kind: Kind[Any, Any], uids: Collection[str]
    ) -> Mapping[str, tuple[Any, Any]]:
        """See ``StateStore.documents``."""
        with self._reading():
            rows = {uid: row for uid in uids if (row := self._row(kind, uid)) is not None}
        return {uid: (json.loads(row.spec), json.loads(row.status)) for uid, row in rows.items()}

    def find(self, kind: Kind[S, T], org: str, name: str) -> Record[S, T] | None:
        """See ``StateStore.find``."""
        with self._reading():
            uid = self._names.get((kind.name, org, name))
            return None if uid is None else self.get(kind, uid)

    def list(
        self,
        kind: Kind[Any, Any],
        *,
        org: str | None = None,
        indexes: Collection[str] | None = None,
        match: Match = EVERYTHING,
        after: int | None = None,
        limit: int = 50,
    ) -> Page[Summary]:
        """See ``StateStore.list``."""
        rules.check_page(limit, indexes)
        with self._reading():
            lines = [row.summary for row in self._rows.values() if row.tags.issuperset(match.words)]
        wanted = sorted(
            (
                line
                for line in lines
                if line.key.kind == kind.name
                and (org is None or line.key.org == org)
                and (indexes is None or line.index in indexes)
                and (after is None or line.number < after)
                and match.admits(line)
            ),
            key=lambda line: -line.number,
        )
        shown = tuple(wanted[:limit])
        return Page(shown, shown[-1].number if len(wanted) > limit else None)

    def counts(self, kind: Kind[Any, Any]) -> Mapping[str, int]:
        """See ``StateStore.counts``."""
        with self._reading():
            return Counter(
                row.summary.index
                for row in self._rows.values()
                if row.summary.key.kind == kind.name
            )

    def count(self, kind: Kind[Any, Any], *, org: str, most: int, tag: str | None = None) -> int:
        """See ``StateStore.count``."""
        with self._reading():
            rows = [row for row in self._rows.values() if tag is None or tag in row.tags]
            return min(
                most,
                sum(
                    (row.summary.key.kind, row.summary.key.org) == (kind.name, org) for row in rows
                ),
            )

    def change_spec(
        self,
        kind: Kind[S, T],
        uid: str,
        change: Callable[[S], S],
        *,
        now: datetime,
        events: Sequence[Event] = (),
        once: Once | None = None,
        fence: Fence | None = None,
    ) -> Record[S, T]:
        """See ``StateStore.change_spec``."""
        with self._writing():
            self._check_fence(fence)
            self._check_unseen(once)
            row = self._existing(kind, uid)
            spec = kind.decode_spec(json.loads(row.spec))
            changed = change(spec)
            if changed != spec:
                text = rules.to_text(kind.decode_spec, changed)
                rules.check_names(kind.spec_tags(changed))
                tags = row.tags.difference(kind.spec_tags(spec)).union(kind.spec_tags(changed))
                row = self._update(
                    row, now, events, spec=text, generation=row.generation + 1, tags=tags
                )
            self._use_up(rules.with_change(once, spec, changed), row.summary.key.name)
        self._wakeups.notify()
        return _record(kind, row)

    def rename(
        self,
        kind: Kind[S, T],
        uid: str,
        name: str,
        *,
        now: datetime,
        once: Once | None = None,
    ) -> Record[S, T]:
        """See ``StateStore.rename``."""
        rules.check_names((), name=name)
        with self._writing():
            self._check_unseen(once)
            row = self._existing(kind, uid)
            key = row.summary.key
            if key.name != name:
                if (taken := self.find(kind, key.org, name)) is not None:
                    spec = kind.decode_spec(json.loads(row.spec))
                    raise rules.name_taken(kind, key.org, name, spec, taken.spec)
                del self._names[key.kind, key.org, key.name]
                self._names[key.kind, key.org, name] = uid
                line = replace(row.summary, key=replace(key, name=name))
                row = self._update(row, now, (), summary=line)
            self._use_up(once, key.name)
        self._wakeups.notify()
        return _record(kind, row)

    def request_delete(
        self,
        kind: Kind[S, T],
        uid: str,
        *,
        now: datetime,
        events: Sequence[Event] = (),
        once: Once | None = None,
        fence: Fence | None = None,
    ) -> Record[S, T]:
        """See ``StateStore.request_delete``."""
        with self._writing():
            self._check_fence(fence)
            self._check_unseen(once)
            row = self._existing(kind, uid)
            if row.delete_requested_at is None:
                row = self._update(
                    row,
                    now,
                    events,
                    summary=replace(row.summary, deleting=True),
                    delete_requested_at=now,
                )
            self._use_up(once, row.summary.key.name)
        self._wakeups.notify()
        return _record(kind, row)

    def commit_status(
        self,
        kind: Kind[S, T],
        uid: str,
        status: T,
        *,
        expected_revision: int,
        fence: Fence | None,
        now: datetime,
        events: Sequence[Event] = (),
        once: Once | None = None,
    ) -> Record[S, T]:
        """See ``StateStore.commit_status``."""
        text = rules.to_text(kind.decode_status, status)
        with self._writing():
            self._check_fence(fence)
            # Check before comparing revisions: on a retry, the first try has changed the
            # revision.
            self._check_unseen(once)
            row = self._row(kind, uid)
            if row is None or row.revision != expected_revision:
                raise rules.stale(kind, uid, expected_revision)
            items.check_growth(kind, kind.decode_status(json.loads(row.status)), status)
            line = replace(row.summary, index=kind.index_of(status))
            tags = row.tags.union(kind.status_tags(status))
            row = self._update(row, now, events, summary=line, status=text, tags=tags)
            self._use_up(once, row.summary.key.name)
        self._wakeups.notify()
        return _record(kind, row)

    def delete(self, kind: Kind[Any, Any], uid: str, *, fence: Fence | None) -> None:
        """See ``StateStore.delete``."""
        with self._writing():
            self._check_fence(fence)
            if (row := self._row(kind, uid)) is None:
                return
            if any(
                each.parent is not None and each.parent.uid == uid for each in self._rows.values()
            ):
                raise rules.has_children(kind, uid)
            key = row.summary.key
            del self._rows[uid], self._names[key.kind, key.org, key.name], self._events[uid]
            self.metrics.forget(uid, key.org)
            self.tracking.forget(uid)
            gone = replace(_change(row), revision=self._next_revision(), gone=True)
            self._deletions.append((gone, self._clock()))
        self._wakeups.notify()

    def add_event(self, uid: str, event: Event) -> None:
        """See ``StateStore.add_event``."""
        with self._writing():
            if uid in self._rows:
                self._say(uid, (event,))
        self._wakeups.notify()

    def events(self, uid: str, *, after: int = 0, limit: int = 1000) -> Sequence[Event]:
        """See ``StateStore.events``."""
        rules.check_page(limit, None)
        with self._reading():
            return tuple(event for event in self._events.get(uid, ()) if event.id > after)[:limit]

    def remember(self, once: Once) -> None:
        """See ``StateStore.remember``."""
        with self._writing():
            self._check_unseen(once)
            self._use_up(once, "")

    def add_audit(self, entry: AuditEntry) -> None:
        """See ``StateStore.add_audit``."""
        with self._writing():
            self._note(entry)

    def audit(
        self, wanted: AuditFilter, *, after: int | None = None, limit: int = 50
    ) -> Page[AuditEntry]:
        """See ``StateStore.audit``."""
        rules.check_page(limit, None)
        with self._reading():
            entries = self._audit[::-1]
        found = [one for one in entries if wanted.wants(one) and (after is None or one.id < after)]
        return Page(tuple(found[:limit]), found[limit - 1].id if len(found) > limit else None)

    def changes(self, after: int, *, limit: int = 1000) -> Sequence[Change]:
        """See ``StateStore.changes``."""
        rules.check_page(limit, None)
        with self._reading():
            living = [_change(row) for row in self._rows.values()]
            gone = [change for change, _ in self._deletions]
        newer = (change for change in living + gone if change.revision > after)
        return tuple(sorted(newer, key=lambda change: change.revision)[:limit])

    def revision(self) -> int:
        """See ``StateStore.revision``."""
        with self._reading():
            return self._revision

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """See ``StateStore.subscribe``."""
        return self._wakeups.subscribe(wake)

    def acquire_lease(self, name: str, holder: str, *, ttl_s: float, now: datetime) -> Lease | None:
        """See ``StateStore.acquire_lease``."""
        with self._writing():
            current = self._leases.get(name)
            abandoned = self._lease_observations.is_abandoned(current, ttl_s=ttl_s)
            lease = rules.next_lease(
                current, name, holder, ttl_s=ttl_s, now=now, abandoned=abandoned
            )
            if lease is not None:
                self._leases[name] = lease
                self._lease_observations.forget(name)
            return lease

    def find_lease(self, name: str) -> Lease | None:
        """See ``StateStore.find_lease``."""
        return self._leases.get(name)

    def release_lease(self, lease: Lease) -> None:
        """See ``StateStore.release_lease``."""
        with self._writing():
            current = self._leases.get(lease.name)
            if current is not None and current.epoch == lease.epoch:
                # Keep the entry for its epoch: the next holder must get a higher one.
                self._leases[lease.name] = replace(current, expires_at=rules.LONG_AGO)

    def prune(self, now: datetime) -> None:
        """See ``StateStore.prune``."""
        keep = self._retention
        with self._writing():
            self._tokens = {token: at for token, at in self._tokens.items() if at > now}
            self._deletions = [
                (change, at) for change, at in self._deletions if at > now - keep.deletions
            ]
            self._keys = {
                key: use for key, use in self._keys.items() if use[1] > now - keep.idempotency_keys
            }
            if keep.audit is not None:
                self._audit = [entry for entry in self._audit if entry.at > now - keep.audit]

    def read_here(self) -> bool:
        """See ``StateStore.read_here``."""
        return True

    def close(self) -> None:
        """See ``StateStore.close``."""
        self._closed = True

    @contextmanager
    def _reading(self) -> Iterator[None]:
        if self._closed:
            raise Unavailable("the state store has been closed")
        with self._lock:
            yield

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One transaction. There is no way back from a write, so all checks come first."""
        with self._reading():
            if self._failure is not None:
                raise self._failure
            yield

    @contextmanager
    def _marking(self, once: Once | None, name: str) -> Iterator[None]:
        """A write that uses up the mark of a request."""
        with self._writing():
            self._check_unseen(once)
            yield
            self._use_up(once, name)

    def _lines(self) -> Mapping[str, Summary]:
        """The lines of all records, by uid."""
        return {uid: row.summary for uid, row in self._rows.items()}

    def _row(self, kind: Kind[Any, Any], uid: str) -> _Row | None:
        row = self._rows.get(uid)
        return row if row is not None and row.summary.key.kind == kind.name else None

    def _org_of(self, uid: str) -> str | None:
        row = self._rows.get(uid)
        return None if row is None else row.summary.key.org

    def _describe(self, uid: str) -> RunWithPoints:
        row = self._rows[uid]
        return RunWithPoints(row.summary.number, uid, row.summary.key.kind)

    def _existing(self, kind: Kind[Any, Any], uid: str) -> _Row:
        if (row := self._row(kind, uid)) is None:
            raise rules.not_found(kind, uid)
        return row

    def _next_revision(self) -> int:
        self._revision += 1
        return self._revision

    def _put(self, row: _Row, events: Sequence[Event]) -> _Row:
        key = row.summary.key
        self._rows[key.uid] = row
        self._names[key.kind, key.org, key.name] = key.uid
        self._say(key.uid, events)
        return row

    def _update(self, row: _Row, now: datetime, events: Sequence[Event], **changed: Any) -> _Row:
        row = replace(row, **changed)
        line = replace(row.summary, updated_at=now)
        return self._put(replace(row, summary=line, revision=self._next_revision()), events)

    def _say(self, uid: str, events: Sequence[Event]) -> None:
        said = self._events.setdefault(uid, [])
        for event in events:
            self._event_id += 1
            reason, message = rules.printable(event.reason), rules.printable(event.message)
            said.append(replace(event, id=self._event_id, reason=reason, message=message))
        del said[: -self._retention.record_events]

    def _check_unseen(self, once: Once | None) -> None:
        if once is not None and once.token in self._tokens:
            raise rules.seen_before()

    def _use_up(self, once: Once | None, name: str) -> None:
        if once is not None:
            self._tokens[once.token] = once.expires_at
            if once.entry is not None:
                self._note(once.entry.about(name))

    def _note(self, entry: AuditEntry) -> None:
        self._audit_id += 1
        self._audit.append(replace(rules.bound_entry(entry), id=self._audit_id))

    def _check_fence(self, fence: Fence | None) -> None:
        if fence is not None:
            lease = self._leases.get(fence.name)
            rules.check_fence(fence, None if lease is None else lease.epoch)


def _change(row: _Row) -> Change:
    key = row.summary.key
    return Change(row.revision, key.kind, key.uid, key.org, key.name, parent=row.parent)


def _record(kind: Kind[S, T], row: _Row) -> Record[S, T]:
    line = row.summary
    return Record(
        key=line.key,
        owner=line.owner,
        generation=row.generation,
        revision=row.revision,
        created_at=line.created_at,
        updated_at=line.updated_at,
        spec=kind.decode_spec(json.loads(row.spec)),
        status=kind.decode_status(json.loads(row.status)),
        delete_requested_at=row.delete_requested_at,
        parent=row.parent,
    )
