"""``SqlStateStore``: the contract of ``state.base`` on a SQL database. Each method is one
transaction.

What a transaction that writes does is said here, and what only reads in ``queries``. How rows are
read and written is said in the rooms beside: ``records``, ``listing``, ``events``, ``changes``,
``marks``, ``requests``, ``audit``, ``leases``, ``counters``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Self, TypeVar

from sqlalchemy import Connection

from cloud_ml.domain.audit import AuditEntry
from cloud_ml.domain.records import Event, Kind, ParentRef, Record
from cloud_ml.domain.tracking.runs import NewRun
from cloud_ml.state import items, rules
from cloud_ml.state.base import Fence, Lease, Once
from cloud_ml.state.lease_observations import LeaseObservations
from cloud_ml.state.matching import all_tags
from cloud_ml.state.sql import audit as audit_rows
from cloud_ml.state.sql import counters, leases, marks, records, requests, tags
from cloud_ml.state.sql import events as event_rows
from cloud_ml.state.sql.connections import ReadConnections
from cloud_ml.state.sql.dialects import Database, open_database
from cloud_ml.state.sql.dialects.base import READERS
from cloud_ml.state.sql.items import ItemRecords, KeptRecord
from cloud_ml.state.sql.metrics.rows import release_points
from cloud_ml.state.sql.metrics.store import SqlMetricStore
from cloud_ml.state.sql.queries import StateQueries
from cloud_ml.state.sql.statements import Row
from cloud_ml.state.sql.tracking import rows as run_rows
from cloud_ml.state.sql.tracking.store import SqlTrackingStore
from cloud_ml.state.sql.writer import Writer
from cloud_ml.state.wakeups import Wakeups

S = TypeVar("S")
T = TypeVar("T")


class SqlStateStore(StateQueries):
    """A state store in a database. Thread-safe; several processes may open the same database.

    Args:
        database: Where to read and write; the store closes it.
        retention: How long marks outlive their record.
        clock: Dates the marks of deletion, which serve ``prune`` alone, and the changes of runs.
        took: Told the seconds of each commit.
    """

    def __init__(
        self,
        database: Database,
        *,
        retention: rules.Retention = rules.RETENTION,
        clock: Callable[[], datetime] = rules.utc_now,
        took: Callable[[float], None] = lambda _: None,
    ) -> None:
        super().__init__(ReadConnections(database), ItemRecords())
        self._database = database
        self._retention = retention
        self._clock = clock
        self._lease_observations = LeaseObservations()
        self._wakeups = Wakeups()
        self._writer = Writer(
            database.writer,
            committed=self._wakeups.notify,
            announce=database.announce,
            took=took,
            keeps=database.prompt is not None,
        )
        self.metrics = SqlMetricStore(self._writer, self._reading)
        self.tracking = SqlTrackingStore(self._writer, self._reading, clock)
        self._stop_listening = database.listen(self._wakeups.notify)

    @classmethod
    def open(
        cls,
        url: str,
        *,
        create: bool = True,
        readers: int = READERS,
        retention: rules.Retention = rules.RETENTION,
        clock: Callable[[], datetime] = rules.utc_now,
        took: Callable[[float], None] = lambda _: None,
    ) -> Self:
        """Open the database at ``url``, check it, and bring its tables to this version.

        Args:
            url: ``sqlite:////absolute/path/state.db`` or ``postgresql://user@host/database``.
            create: Make the database if there is none. Pass ``False`` where other data shows that
                there must be one, so that its loss is noticed. PostgreSQL's databases are made by
                their administrator; there it means the tables.
            readers: At most so many reads at once, each on a connection of its own.
            retention: How long marks outlive their record.
            clock: Dates the marks of deletion.
            took: Told the seconds of each commit.

        Raises:
            InvalidRequest: ``url`` names no database of a kind we know.
            Damaged: The database cannot be trusted, or is missing. It is left as it is.
            Conflict: A newer version has written it.
            OutOfSpace: The disk is full or read-only.
            Unavailable: The database does not answer.
        """
        return cls(
            open_database(url, create=create, readers=readers),
            retention=retention,
            clock=clock,
            took=took,
        )

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
        uid = rules.new_uid()
        words = all_tags(owner, parent, kind.spec_tags(spec), kind.status_tags(status))
        rules.check_names(words, org=org, name=name, owner=owner)
        values = {
            "uid": uid,
            "kind": kind.name,
            "org": org,
            "name": name,
            "owner": owner,
            "index_value": kind.index_of(status),
            "generation": 1,
            "created_at": now,
            "updated_at": now,
            "delete_requested_at": None,
            "title": rules.printable(title),
            "spec": rules.to_text(kind.decode_spec, spec),
            "status": rules.to_text(kind.decode_status, items.without_items(kind, status)),
            **records.parent_columns(parent),
        }

        def work(connection: Connection) -> Record[S, T]:
            marks.check_unseen(connection, once)
            # Check the key before the name: on a retry, the name is taken by the request's own
            # record.
            made = marks.made_by(connection, kind, org, idempotency_key)
            if made is not None:
                return _alive(self._whole(connection, kind, made), kind, idempotency_key)
            if (taken := records.find(connection, kind, org, name)) is not None:
                raise rules.name_taken(kind, org, name, spec, records.decode_spec(kind, taken))
            position = counters.advance_and_note(connection, now, events=len(events))
            # The counters are advanced, so this transaction excludes other writers and the parent
            # cannot be removed.
            records.check_parent(connection, parent)
            row = records.add(
                connection, {**values, "number": position.revision, "revision": position.revision}
            )
            self._items.add(connection, kind, row.number, status, position.revision)
            _append(connection, uid, events, position)
            tags.add(connection, row.number, kind.name, org, words)
            if run is not None:
                run_rows.add(connection, row.number, org, run)
            marks.add_key(connection, kind, org, idempotency_key, uid=uid, now=now)
            requests.use_up(connection, once, name)
            return self._decoded(connection, kind, row)

        return self._writer.run(work)

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
            lambda _connection, row: (change(records.decode_spec(kind, row)), events),
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
            kind,
            uid,
            lambda connection, row: change(self._decoded(connection, kind, row)),
            now=now,
            once=once,
            fence=None,
        )

    def _change_spec(
        self,
        kind: Kind[S, T],
        uid: str,
        change: Callable[[Connection, Any], tuple[S, Sequence[Event]]],
        *,
        now: datetime,
        once: Once | None,
        fence: Fence | None,
    ) -> Record[S, T]:
        def work(connection: Connection) -> Record[S, T]:
            leases.check_fence(connection, fence)
            row = requests.find_row(connection, kind, uid, once)
            spec = records.decode_spec(kind, row)
            changed, events = change(connection, row)
            requests.use_up(connection, rules.with_change(once, spec, changed), row.name)
            if changed == spec:
                return self._decoded(connection, kind, row)
            position = counters.advance(connection, revisions=1, events=len(events))
            self._append(connection, uid, events, position)
            text = rules.to_text(kind.decode_spec, changed)
            rules.check_names(kind.spec_tags(changed))
            tags.replace(
                connection,
                row.number,
                kind.name,
                row.org,
                before=kind.spec_tags(spec),
                after=kind.spec_tags(changed),
            )
            row = records.set_spec(
                connection, kind, uid, spec=text, revision=position.revision, now=now
            )
            return self._decoded(connection, kind, row)

        return self._writer.run(work)

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

        def work(connection: Connection) -> Record[S, T]:
            row = requests.claim_row(connection, kind, uid, once)
            if row.name == name:
                return self._decoded(connection, kind, row)
            if (taken := records.find(connection, kind, row.org, name)) is not None:
                spec = records.decode_spec(kind, row)
                raise rules.name_taken(kind, row.org, name, spec, records.decode_spec(kind, taken))
            revision = counters.advance(connection, revisions=1).revision
            row = records.set_name(connection, kind, uid, name=name, revision=revision, now=now)
            return self._decoded(connection, kind, row)

        return self._writer.run(work)

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

        def work(connection: Connection) -> Record[S, T]:
            leases.check_fence(connection, fence)
            row = requests.claim_row(connection, kind, uid, once)
            if row.delete_requested_at is not None:
                return self._decoded(connection, kind, row)
            position = counters.advance(connection, revisions=1, events=len(events))
            self._append(connection, uid, events, position)
            row = records.mark_for_deletion(
                connection, kind, uid, revision=position.revision, now=now
            )
            return self._decoded(connection, kind, row)

        return self._writer.run(work)

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

        def work(connection: Connection) -> KeptRecord[S, T]:
            position = counters.advance_within(connection, fence, events=len(events))
            marks.check_unseen(connection, once)
            write = self._set_status if kind.items is None else self._items.set_status
            found = write(
                connection,
                kind,
                uid,
                status,
                expected=expected_revision,
                revision=position.revision,
                now=now,
            )
            if found is None:
                raise rules.stale(kind, uid, expected_revision)
            key = found.record.key
            tags.keep(connection, found.number, kind.name, key.org, kind.status_tags(status))
            self._append(connection, uid, events, position)
            requests.use_up(connection, once, key.name)
            return found

        found = self._writer.run(work)
        if kind.items is not None:
            # Keep it only after the commit: a failed transaction must leave nothing in the cache.
            self._items.keep(found)
        return found.record

    def delete(
        self,
        kind: Kind[Any, Any],
        uid: str,
        *,
        fence: Fence | None,
        entry: AuditEntry | None = None,
    ) -> None:
        """See ``StateStore.delete``."""
        now = self._clock()

        def work(connection: Connection) -> None:
            leases.check_fence(connection, fence)
            # Do this before removing the record: its series go with it, and they are needed to
            # count the points.
            release_points(connection, kind.name, uid)
            if (removed := records.remove(connection, kind, uid)) is not None:
                revision = counters.advance(connection, revisions=1).revision
                # Check for children while no other writer can add one. The error rolls back the
                # removal.
                if records.has_children(connection, uid):
                    raise rules.has_children(kind, uid)
                marks.add_deletion(connection, removed, revision=revision, now=now)
            if entry is not None:
                audit_rows.append_now(connection, entry)

        self._writer.run(work)
        self._items.forget(uid)

    def add_event(self, uid: str, event: Event) -> None:
        """See ``StateStore.add_event``."""

        def work(connection: Connection) -> None:
            if event_rows.has_record(connection, uid):
                self._append(connection, uid, (event,), counters.advance(connection, events=1))

        self._writer.run(work)

    def remember(self, once: Once) -> None:
        """See ``StateStore.remember``."""

        def work(connection: Connection) -> None:
            marks.check_unseen(connection, once)
            requests.use_up(connection, once, "")

        self._writer.run(work, wake=False)

    def add_audit(self, entry: AuditEntry) -> None:
        """See ``StateStore.add_audit``."""
        self._writer.run(lambda c: audit_rows.append(c, entry), wake=False)

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """See ``StateStore.subscribe``."""
        return self._wakeups.subscribe(wake)

    def acquire_lease(self, name: str, holder: str, *, ttl_s: float, now: datetime) -> Lease | None:
        """See ``StateStore.acquire_lease``."""
        observations = self._lease_observations
        lease = self._writer.run(
            lambda c: leases.acquire(
                c, name, holder, ttl_s=ttl_s, now=now, observations=observations
            ),
            wake=False,
        )
        if lease is not None:
            observations.forget(name)
        return lease

    def release_lease(self, lease: Lease) -> None:
        """See ``StateStore.release_lease``."""
        self._writer.run(lambda c: leases.release(c, lease), wake=False)

    def prune(self, now: datetime) -> None:
        """See ``StateStore.prune``."""
        while self._writer.run(lambda c: marks.drop_some(c, now, self._retention), wake=False):
            pass

    def close(self) -> None:
        """See ``StateStore.close``."""
        self._stop_listening()
        self._reading.close()
        self._writer.close()
        self._database.close()

    @staticmethod
    def _set_status(
        connection: Connection,
        kind: Kind[S, T],
        uid: str,
        status: T,
        *,
        expected: int,
        revision: int,
        now: datetime,
    ) -> KeptRecord[S, T] | None:
        """Write a status as a whole. ``None`` if the record is not at ``expected``, or is gone."""
        row = records.set_status(
            connection,
            kind,
            uid,
            expected=expected,
            status=rules.to_text(kind.decode_status, status),
            index_value=kind.index_of(status),
            revision=revision,
            now=now,
        )
        return None if row is None else KeptRecord(records.decode(kind, row), row.number, 0)

    def _whole(self, connection: Connection, kind: Kind[S, T], uid: str) -> Record[S, T] | None:
        """The record with all of its status, in the transaction of a writer."""
        if kind.items is not None:
            return self._items.load(connection, kind, uid)
        row = records.get(connection, kind, uid)
        return None if row is None else records.decode(kind, row)

    def _decoded(self, connection: Connection, kind: Kind[S, T], row: Row) -> Record[S, T]:
        """The record of a row that was read or written in this transaction."""
        if kind.items is None:
            return records.decode(kind, row)
        return _alive(self._items.load(connection, kind, row.uid), kind, row.uid)

    def _append(
        self, connection: Connection, uid: str, events: Sequence[Event], position: counters.Position
    ) -> None:
        """Write events of a record that had some before."""
        if events:
            _append(connection, uid, events, position)
            event_rows.drop_old(connection, uid, most=self._retention.record_events)


def _alive(record: Record[S, T] | None, kind: Kind[S, T], key: str | None) -> Record[S, T]:
    if record is None:
        raise rules.record_gone(kind, str(key))
    return record


def _append(
    connection: Connection, uid: str, events: Sequence[Event], position: counters.Position
) -> None:
    event_rows.append(connection, uid, events, last_id=position.event)
