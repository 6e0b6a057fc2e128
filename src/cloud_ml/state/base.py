"""The contract of a state store. ``cloud_ml.testing.state.StateStoreContract`` is the same in code.

Methods are synchronous, thread-safe, and each is one short transaction: either all of it is durable
when the method returns, or none of it ever happened. Loops call them through an executor.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

from cloud_ml.domain.audit import AuditEntry, AuditFilter
from cloud_ml.domain.records import Event, Kind, ParentRef, Record, Summary
from cloud_ml.domain.tracking.runs import NewRun
from cloud_ml.state.matching import EVERYTHING, Match
from cloud_ml.state.metrics import MetricStore
from cloud_ml.state.tracking import TrackingStore

S = TypeVar("S")
T = TypeVar("T")
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Once:
    """Makes a mutation happen at most once: ``token`` is inserted as a unique row in its
    transaction.

    A request's (key, nonce) goes here, so that a replayed request is refused by any server, also
    after a crash. Rows may be dropped after ``expires_at``. The ``entry`` goes into the audit log
    in the same transaction, with the time of this: what happened is on record, and what did not is
    not.
    """

    token: str
    expires_at: datetime
    entry: AuditEntry | None = None


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """A page of a list, and the cursor of the next one (``None`` at the end).

    A page may be short, or empty, and have a next one: looking for what is rare ends after a while.
    """

    items: Sequence[Item]
    next: int | None


@dataclass(frozen=True, slots=True)
class Change:
    """Something changed: the feed names it, whoever cares reads it.

    ``org``, ``name`` and ``parent`` are those of the record, also of one that is gone; empty where
    an older version removed it.
    """

    revision: int
    kind: str
    uid: str
    org: str = field(default="", compare=False)
    name: str = field(default="", compare=False)
    gone: bool = field(default=False, compare=False)
    parent: ParentRef | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to act under ``name`` until ``expires_at``. ``epoch`` grows with every new
    holder.
    """

    name: str
    holder: str
    epoch: int
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Fence:
    """Shown with a write: it is refused once the lease has passed on."""

    name: str
    epoch: int


class StateStore(abc.ABC):
    """Where every promise is kept.

    Revisions come from one counter inside the transaction: revision order is commit order, so a
    follower of ``changes`` never skips a late commit.

    Every method may raise ``OutOfSpace`` (disk full or read-only), ``Unavailable`` (no answer) or
    ``Damaged``; after either of the first two, later calls may succeed again.
    """

    metrics: MetricStore
    """The points that runs have reported."""
    tracking: TrackingStore
    """Runs, their parameters and tags, and experiments."""

    @abc.abstractmethod
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
        """Store a new record (generation 1) with its first events, made for its ``parent`` if one
        is named. With ``run``, it is a run, too.

        With an ``idempotency_key`` that this organisation has used for this kind before, the record
        it made is returned as it is now and nothing is written.

        Raises:
            AlreadyExists: A living record of this kind and organisation has the name.
            Conflict: The idempotency key made a record that is gone.
            NotFound: There is no such parent.
            Unauthenticated: ``once`` was seen before.
        """

    @abc.abstractmethod
    def has_made(self, kind: Kind[Any, Any], org: str, idempotency_key: str) -> bool:
        """Whether ``create`` with this key has made a record, which may be gone. ``create``
        would not make another.
        """

    @abc.abstractmethod
    def get(self, kind: Kind[S, T], uid: str) -> Record[S, T] | None:
        """The record, or ``None``."""

    @abc.abstractmethod
    def documents(
        self, kind: Kind[Any, Any], uids: Collection[str]
    ) -> Mapping[str, tuple[Any, Any]]:
        """Spec and status of at most 1000 ``uids`` as the JSON values that are stored: cheaper than
        records. The list of ``kind.items`` may be left out.

        Those that are gone or cannot be read are left out.
        """

    @abc.abstractmethod
    def find(self, kind: Kind[S, T], org: str, name: str) -> Record[S, T] | None:
        """The living record of that name, or ``None``."""

    @abc.abstractmethod
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
        """Newest first.

        Args:
            kind: What to list.
            org: Only this organisation's; ``None`` for all.
            indexes: Only records listed under one of these values (see ``Kind.indexed``).
            match: Only records that it admits.
            after: The cursor of the page before.
            limit: At most this many, 1 to 1000.

        Raises:
            InvalidRequest: ``limit`` is out of range, or there are more than 100 ``indexes``.
        """

    @abc.abstractmethod
    def counts(self, kind: Kind[Any, Any]) -> Mapping[str, int]:
        """How many records are listed under each index. Walks all of an index: for the operator,
        not for requests.
        """

    @abc.abstractmethod
    def count(self, kind: Kind[Any, Any], *, org: str, most: int, tag: str | None = None) -> int:
        """How many records an organisation has, counted up to ``most``; with ``tag``, those that
        have it.
        """

    @abc.abstractmethod
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
        """Replace the spec by ``change(spec)``; raises the generation unless nothing changed.

        ``change`` is pure and may be called more than once. If nothing changed, no event is written
        and the revision stays; ``once`` is used up all the same.

        Raises:
            NotFound: No such record.
            Unauthenticated: ``once`` was seen before.
            FenceLost: The fence's lease has a newer epoch.
        """

    @abc.abstractmethod
    def change_spec_of_record(
        self,
        kind: Kind[S, T],
        uid: str,
        change: Callable[[Record[S, T]], tuple[S, Sequence[Event]]],
        *,
        now: datetime,
        once: Once | None = None,
    ) -> Record[S, T]:
        """As ``change_spec``, where the new spec, and what is told of it, depend on the status, too.

        Nothing is committed between what ``change`` sees and what is written.

        Raises:
            NotFound: No such record.
            Unauthenticated: ``once`` was seen before.
        """

    @abc.abstractmethod
    def rename(
        self,
        kind: Kind[S, T],
        uid: str,
        name: str,
        *,
        now: datetime,
        once: Once | None = None,
    ) -> Record[S, T]:
        """Give a record another name. Everything else stays, so nothing that changes it at the same
        time is lost. A record that has the name already stays as it is.

        Raises:
            NotFound: No such record.
            AlreadyExists: Another record of its kind and organisation has the name.
            Unauthenticated: ``once`` was seen before.
        """

    @abc.abstractmethod
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
        """Mark the record for deletion; a second mark changes nothing but uses up ``once``.

        Raises:
            NotFound: No such record.
            Unauthenticated: ``once`` was seen before.
            FenceLost: The fence's lease has a newer epoch.
        """

    @abc.abstractmethod
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
        """Write a new status and its events, if the record is still at ``expected_revision``.

        Of a list of ``kind.items`` only what has changed is written. It is cheapest if items that
        have not changed are the objects that were read.

        Raises:
            StaleRevision: It is not, or it is gone. ``once`` is not used up then.
            Unauthenticated: ``once`` was seen before.
            ValueError: A list of ``kind.items`` has lost something: a mistake in the program.
            FenceLost: The fence's lease has a newer epoch.
        """

    @abc.abstractmethod
    def delete(
        self,
        kind: Kind[Any, Any],
        uid: str,
        *,
        fence: Fence | None,
        entry: AuditEntry | None = None,
    ) -> None:
        """Remove the record and its events; what is gone already is success. The name is free
        again.

        The ``entry`` goes into the audit log in the same transaction, with the time of this.

        Raises:
            Conflict: There are records whose parent it is.
            FenceLost: The fence's lease has a newer epoch.
        """

    @abc.abstractmethod
    def add_event(self, uid: str, event: Event) -> None:
        """Add one event outside a transition. A record that is gone is no error.

        However an event is added, a record keeps its newest ones only: ``Retention.record_events``
        of them.
        """

    @abc.abstractmethod
    def events(self, uid: str, *, after: int = 0, limit: int = 1000) -> Sequence[Event]:
        """Events of a record in the order they were written, those with ``id > after``."""

    @abc.abstractmethod
    def remember(self, once: Once) -> None:
        """Record a ``once`` token by itself, for a mutation that lives outside the store (objects).

        Raises:
            Unauthenticated: It was seen before.
        """

    @abc.abstractmethod
    def add_audit(self, entry: AuditEntry) -> None:
        """Add an entry to the audit log by itself: for what was refused, or happened outside of
        requests.
        """

    @abc.abstractmethod
    def audit(
        self, audit_filter: AuditFilter, *, after: int | None = None, limit: int = 50
    ) -> Page[AuditEntry]:
        """Entries of the audit log, newest first; ``after`` is the cursor of the page before.

        Raises:
            InvalidRequest: ``limit`` is out of range.
        """

    @abc.abstractmethod
    def changes(self, after: int, *, limit: int = 1000) -> Sequence[Change]:
        """What changed after revision ``after``, oldest first; deletions included.

        A record that changed several times may appear once, at its newest revision.
        """

    @abc.abstractmethod
    def revision(self) -> int:
        """The newest revision that is committed."""

    @abc.abstractmethod
    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` soon after commits, from any thread; returns the way to unsubscribe.

        A hint only: commits of other servers may go unheard, so followers also poll ``changes``.
        """

    @abc.abstractmethod
    def acquire_lease(self, name: str, holder: str, *, ttl_s: float, now: datetime) -> Lease | None:
        """Take a free or expired lease (a new epoch) or extend one's own (same epoch).

        Returns ``None`` while somebody else holds it. One that this process has seen unchanged for
        ``ttl_s`` is held by nobody, however far off its end is: its holder's clock was ahead.
        """

    @abc.abstractmethod
    def find_lease(self, name: str) -> Lease | None:
        """The lease as it was taken last, be it over or not; ``None`` if it never was."""

    @abc.abstractmethod
    def release_lease(self, lease: Lease) -> None:
        """Give the lease back; one that has passed on already is left alone."""

    @abc.abstractmethod
    def prune(self, now: datetime) -> None:
        """Drop expired ``Once`` rows, old marks of deletion and old entries of the audit log."""

    def read_here(self) -> bool:
        """Let the thread that calls this, and no other, read without waiting for a lock, a
        connection or a network.

        Where that cannot be had, which is what ``False`` says, reads belong on threads that may
        wait. Where it can, a read that would have to wait all the same raises ``Unavailable`` at
        once.
        """
        return False

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of files and connections."""
