"""A state store in memory: an honest fake. It keeps the same contract as the real ones, durability
apart.

What it keeps stands beside it: ``memory_records``, ``memory_requests``, ``memory_leases``,
``memory_metrics``, ``memory_tracking``.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from cloud_ml.domain.audit import AuditEntry, AuditFilter
from cloud_ml.domain.records import Event, Key, Kind, ParentRef, Record, Summary
from cloud_ml.domain.tracking.runs import NewRun
from cloud_ml.errors import CloudMlError, Unavailable
from cloud_ml.state import items, rules
from cloud_ml.state.base import Change, Fence, Lease, Once, Page, StateStore
from cloud_ml.state.matching import EVERYTHING, Match, all_tags
from cloud_ml.state.memory_leases import MemoryLeases
from cloud_ml.state.memory_metrics import MemoryMetricStore
from cloud_ml.state.memory_records import (
    MemoryRecords,
    MemoryRow,
    decode,
    decode_spec,
    decode_status,
    documents,
)
from cloud_ml.state.memory_requests import MemoryRequests
from cloud_ml.state.memory_tracking import MemoryTrackingStore
from cloud_ml.state.metrics import RunWithPoints
from cloud_ml.state.wakeups import Wakeups

S = TypeVar("S")
T = TypeVar("T")


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
        # Reentrant, because a write of runs also reads and writes metrics.
        self._lock = threading.RLock()
        self._wakeups = Wakeups()
        self._records = MemoryRecords(retention.record_events)
        self._requests = MemoryRequests(clock)
        self._leases = MemoryLeases()
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
            revision_of=lambda uid: self._records[uid].revision,
            touch=self._touch,
            advance=self._records.next_revision,
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
            self._requests.check_unseen(once)
            # Check the key before the name: on a retry, the name is taken by the request's own
            # record.
            made = self._requests.made_by(kind, org, idempotency_key)
            if made is not None:
                if (row := self._records.get(kind, made)) is None:
                    raise rules.record_gone(kind, str(idempotency_key))
                return decode(kind, row)
            if (taken := self._records.find(kind, org, name)) is not None:
                raise rules.name_taken(kind, org, name, spec, decode_spec(kind, taken))
            self._records.check_parent(parent)
            key = Key(kind.name, org, name, rules.new_uid())
            revision = self._records.next_revision()
            line = Summary(
                key, owner, revision, kind.index_of(status), now, now, False, rules.printable(title)
            )
            row = self._records.put(
                MemoryRow(line, 1, revision, None, *texts, tags, parent), events
            )
            self._requests.add_key(kind, org, idempotency_key, uid=key.uid, now=now)
            if run is not None:
                self.tracking.add(key.uid, run)
            self._requests.use_up(once, name)
        # Notify outside of the lock, because subscribers read at once.
        self._wakeups.notify()
        return decode(kind, row)

    def has_made(self, kind: Kind[Any, Any], org: str, idempotency_key: str) -> bool:
        """See ``StateStore.has_made``."""
        with self._reading():
            return self._requests.made_by(kind, org, idempotency_key) is not None

    def get(self, kind: Kind[S, T], uid: str) -> Record[S, T] | None:
        """See ``StateStore.get``."""
        with self._reading():
            row = self._records.get(kind, uid)
        return None if row is None else decode(kind, row)

    def documents(
        self, kind: Kind[Any, Any], uids: Collection[str]
    ) -> Mapping[str, tuple[Any, Any]]:
        """See ``StateStore.documents``."""
        with self._reading():
            rows = [row for uid in uids if (row := self._records.get(kind, uid)) is not None]
        return documents(rows)

    def find(self, kind: Kind[S, T], org: str, name: str) -> Record[S, T] | None:
        """See ``StateStore.find``."""
        with self._reading():
            row = self._records.find(kind, org, name)
        return None if row is None else decode(kind, row)

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
            lines = [
                row.summary for row in self._records.rows() if row.tags.issuperset(match.words)
            ]
        records = sorted(
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
        shown = tuple(records[:limit])
        return Page(shown, shown[-1].number if len(records) > limit else None)

    def counts(self, kind: Kind[Any, Any]) -> Mapping[str, int]:
        """See ``StateStore.counts``."""
        with self._reading():
            return Counter(
                row.summary.index
                for row in self._records.rows()
                if row.summary.key.kind == kind.name
            )

    def count(self, kind: Kind[Any, Any], *, org: str, most: int, tag: str | None = None) -> int:
        """See ``StateStore.count``."""
        with self._reading():
            rows = [row for row in self._records.rows() if tag is None or tag in row.tags]
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
        return self._change_spec(
            kind,
            uid,
            lambda row: (change(decode_spec(kind, row)), events),
            now=now,
            once=once,
            fence=fence,
        )

    def change_spec_of_record(
        self,
        kind: Kind[S, T],
        uid: str,
        change: Callable[[Record[S, T]], tuple[S, Sequence[Event]]],
        *,
        now: datetime,
        once: Once | None = None,
    ) -> Record[S, T]:
        """See ``StateStore.change_spec_of_record``."""
        return self._change_spec(
            kind, uid, lambda row: change(decode(kind, row)), now=now, once=once, fence=None
        )

    def _change_spec(
        self,
        kind: Kind[S, T],
        uid: str,
        change: Callable[[MemoryRow], tuple[S, Sequence[Event]]],
        *,
        now: datetime,
        once: Once | None,
        fence: Fence | None,
    ) -> Record[S, T]:
        with self._writing():
            self._leases.check_fence(fence)
            self._requests.check_unseen(once)
            row = self._records.require(kind, uid)
            spec = decode_spec(kind, row)
            changed, events = change(row)
            if changed != spec:
                text = rules.to_text(kind.decode_spec, changed)
                rules.check_names(kind.spec_tags(changed))
                tags = row.tags.difference(kind.spec_tags(spec)).union(kind.spec_tags(changed))
                row = self._records.update(
                    row, now, events, spec=text, generation=row.generation + 1, tags=tags
                )
            self._requests.use_up(rules.with_change(once, spec, changed), row.summary.key.name)
        self._wakeups.notify()
        return decode(kind, row)

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
            self._requests.check_unseen(once)
            row = self._records.require(kind, uid)
            key = row.summary.key
            if key.name != name:
                if (taken := self._records.find(kind, key.org, name)) is not None:
                    spec = decode_spec(kind, row)
                    raise rules.name_taken(kind, key.org, name, spec, decode_spec(kind, taken))
                row = self._records.rename(row, name, now)
            self._requests.use_up(once, key.name)
        self._wakeups.notify()
        return decode(kind, row)

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
            self._leases.check_fence(fence)
            self._requests.check_unseen(once)
            row = self._records.require(kind, uid)
            if row.delete_requested_at is None:
                row = self._records.update(
                    row,
                    now,
                    events,
                    summary=replace(row.summary, deleting=True),
                    delete_requested_at=now,
                )
            self._requests.use_up(once, row.summary.key.name)
        self._wakeups.notify()
        return decode(kind, row)

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
            self._leases.check_fence(fence)
            # Check before comparing revisions: on a retry, the first try has changed the
            # revision.
            self._requests.check_unseen(once)
            row = self._records.get(kind, uid)
            if row is None or row.revision != expected_revision:
                raise rules.stale(kind, uid, expected_revision)
            items.check_growth(kind, decode_status(kind, row), status)
            line = replace(row.summary, index=kind.index_of(status))
            tags = row.tags.union(kind.status_tags(status))
            row = self._records.update(row, now, events, summary=line, status=text, tags=tags)
            self._requests.use_up(once, row.summary.key.name)
        self._wakeups.notify()
        return decode(kind, row)

    def delete(
        self,
        kind: Kind[Any, Any],
        uid: str,
        *,
        fence: Fence | None,
        entry: AuditEntry | None = None,
    ) -> None:
        """See ``StateStore.delete``."""
        with self._writing():
            self._leases.check_fence(fence)
            if (row := self._records.get(kind, uid)) is not None:
                if self._records.has_children(uid):
                    raise rules.has_children(kind, uid)
                self._records.remove(row, self._clock())
                self.metrics.forget(uid, row.summary.key.org)
                self.tracking.forget(uid)
            if entry is not None:
                self._requests.add_audit_now(entry)
        self._wakeups.notify()

    def add_event(self, uid: str, event: Event) -> None:
        """See ``StateStore.add_event``."""
        with self._writing():
            if uid in self._records:
                self._records.add_events(uid, (event,))
        self._wakeups.notify()

    def events(self, uid: str, *, after: int = 0, limit: int = 1000) -> Sequence[Event]:
        """See ``StateStore.events``."""
        rules.check_page(limit, None)
        with self._reading():
            return self._records.events(uid, after=after)[:limit]

    def remember(self, once: Once) -> None:
        """See ``StateStore.remember``."""
        with self._writing():
            self._requests.check_unseen(once)
            self._requests.use_up(once, "")

    def add_audit(self, entry: AuditEntry) -> None:
        """See ``StateStore.add_audit``."""
        with self._writing():
            self._requests.add_audit(entry)

    def audit(
        self, audit_filter: AuditFilter, *, after: int | None = None, limit: int = 50
    ) -> Page[AuditEntry]:
        """See ``StateStore.audit``."""
        rules.check_page(limit, None)
        with self._reading():
            return self._requests.audit(audit_filter, after=after, limit=limit)

    def changes(self, after: int, *, limit: int = 1000) -> Sequence[Change]:
        """See ``StateStore.changes``."""
        rules.check_page(limit, None)
        with self._reading():
            return self._records.changes(after)[:limit]

    def revision(self) -> int:
        """See ``StateStore.revision``."""
        with self._reading():
            return self._records.revision

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """See ``StateStore.subscribe``."""
        return self._wakeups.subscribe(wake)

    def acquire_lease(self, name: str, holder: str, *, ttl_s: float, now: datetime) -> Lease | None:
        """See ``StateStore.acquire_lease``."""
        with self._writing():
            return self._leases.acquire(name, holder, ttl_s=ttl_s, now=now)

    def find_lease(self, name: str) -> Lease | None:
        """See ``StateStore.find_lease``."""
        return self._leases.find(name)

    def release_lease(self, lease: Lease) -> None:
        """See ``StateStore.release_lease``."""
        with self._writing():
            self._leases.release(lease)

    def prune(self, now: datetime) -> None:
        """See ``StateStore.prune``."""
        with self._writing():
            self._requests.prune(now, self._retention)
            self._records.drop_deletions(now - self._retention.deletions)

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
            self._requests.check_unseen(once)
            yield
            self._requests.use_up(once, name)

    def _lines(self) -> Mapping[str, Summary]:
        """The lines of all records, by uid."""
        return {row.summary.key.uid: row.summary for row in self._records.rows()}

    def _org_of(self, uid: str) -> str | None:
        return self._records[uid].summary.key.org if uid in self._records else None

    def _describe(self, uid: str) -> RunWithPoints:
        row = self._records[uid]
        return RunWithPoints(row.summary.number, uid, row.summary.key.kind)

    def _touch(self, uid: str) -> int:
        """Give a record a new revision, which is returned."""
        return self._records.update(self._records[uid], self._clock(), ()).revision
