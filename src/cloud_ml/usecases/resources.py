"""Kinds of resources by description: what a caller may ask of any of them. Blocking."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from cloud_ml.domain.records import Event, EventType, Kind, Record, Summary
from cloud_ml.domain.tenancy import Operation
from cloud_ml.engines.base import Capacity
from cloud_ml.errors import AlreadyExists, Conflict, NotFound
from cloud_ml.models import common
from cloud_ml.models.resource import NewResource, ResourceType, ResourceView
from cloud_ml.state.base import Once, Page, StateStore
from cloud_ml.usecases.access.identities import UNDER_ALL, Identity
from cloud_ml.usecases.access.permissions import permit
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.record_limits import RecordLimits

NewT = TypeVar("NewT", bound=NewResource)
ViewT = TypeVar("ViewT", bound=ResourceView)
S = TypeVar("S")
T = TypeVar("T")
_LONGEST_NAME = 63


def _admit_all(_caller: Identity, _spec: Any, _capacity: Capacity) -> None:
    """Nothing more is to be asked."""


def _as_it_is(view: Any) -> Any:
    return view


def _complete(_caller: Identity, spec: Any) -> Any:
    return spec


def _no_fields(_: Any) -> Mapping[str, Any]:
    return {}


RecordAction = Callable[[Record[S, T], Any], tuple[S, Sequence[tuple[str, str]]]]


@dataclass(frozen=True, kw_only=True)
class Resource(Generic[NewT, ViewT, S, T]):
    """Describes a kind of resource to the server.

    Attributes:
        type: What its users see of it.
        kind: How it is stored.
        operation: The right that changes need. Every user of the organisation may look.
        spec_of: Makes the spec of what was sent. Raises ``InvalidRequest`` for what is wrong with
            it.
        first_status: The status that a new one begins with.
        complete: Adds to a spec what is found in other records of the caller's organisation. Raises
            ``NotFound`` where there is no such record.
        admit: Refuses a spec that this server, or the caller's organisation, has no means for.
            Raises ``RequestError``.
        actions: What each of the type's actions makes of the spec, and of what was sent with it if
            it takes anything. Pure. Those that take nothing are the same when repeated. Raises
            ``InvalidRequest`` for what is wrong with it.
        record_actions: Likewise those that depend on the status, too. Each makes a spec of the record
            and of what was sent, and (reason, message) pairs for warnings among the events.
        fields: The view's own fields, beyond those that all resources show.
        in_list: What a list shows of a view: one without what may be large.
        phases: All phases that one can have. A list of others is refused; without any, none is.
        has_controller: A controller removes its records when their deletion is asked for. Without
            one, they are removed at once.
    """

    type: ResourceType[NewT, ViewT]
    kind: Kind[S, T]
    operation: Operation
    spec_of: Callable[[NewT], S]
    first_status: Callable[[S], T]
    complete: Callable[[Identity, S], S] = _complete
    admit: Callable[[Identity, S, Capacity], None] = _admit_all
    actions: Mapping[str, Callable[..., S]] = field(default_factory=dict)
    record_actions: Mapping[str, RecordAction[S, T]] = field(default_factory=dict)
    fields: Callable[[Record[S, T]], Mapping[str, Any]] = _no_fields
    in_list: Callable[[ViewT], ViewT] = _as_it_is
    phases: Collection[str] = ()
    has_controller: bool = False

    def view(self, record: Record[S, T]) -> ViewT:
        """What is shown of a record."""
        return self.type.view(
            uid=record.key.uid,
            name=record.key.name,
            org=record.key.org,
            owner=record.owner,
            phase=self.kind.index_of(record.status),
            revision=record.revision,
            created_at=record.created_at,
            updated_at=record.updated_at,
            deleting=record.delete_requested_at is not None,
            **self.fields(record),
        )


class Resources(Generic[NewT, ViewT, S, T]):
    """The resources of one kind. Those of another organisation look as absent as those that
    never were.
    """

    def __init__(
        self,
        resource: Resource[NewT, ViewT, S, T],
        store: StateStore,
        clock: Clock,
        limits: RecordLimits,
    ) -> None:
        self._resource = resource
        self._kind = resource.kind
        self._store = store
        self._clock = clock
        self._limits = limits

    def create(
        self,
        caller: Identity,
        new: NewT,
        capacity: Capacity,
        *,
        idempotency_key: str | None = None,
        once: Once | None = None,
        notes: Sequence[str] = (),
    ) -> Record[S, T]:
        """Store a new resource. ``capacity`` is what the engine has in all. ``notes`` are what its
        owner should know about what was sent.

        Raises:
            Forbidden: The caller's role may not.
            InvalidRequest: A field is wrong, or the server cannot do what it asks for.
            QuotaExceeded: The organisation has as many records as it may have.
            AlreadyExists: The name is taken.
            Conflict: The idempotency key was used for another one.
        """
        resource = self._resource
        permit(caller, resource.operation)
        name = common.check_name("name", new.name)
        spec, now = resource.complete(caller, resource.spec_of(new)), self._clock()
        resource.admit(caller, spec, capacity)
        self._limits.check(self._kind, caller.org, resource.type.plural, spec)
        warnings = [Event(now, "FieldIgnored", note, EventType.WARNING) for note in notes]
        try:
            record = self._store.create(
                self._kind,
                org=caller.org,
                name=name,
                owner=caller.user,
                spec=spec,
                status=resource.first_status(spec),
                now=now,
                events=[Event(now, "Created", f"created by {caller.user}"), *warnings],
                idempotency_key=idempotency_key,
                once=once,
            )
        except AlreadyExists as error:
            one = resource.type.name
            raise AlreadyExists(
                f"there is {common.with_article(one)} {name} already",
                field="name",
                value=name,
                allowed="a name that is not in use",
                same_spec=(found := self._store.find(self._kind, caller.org, name)) is not None
                and found.spec == spec,
            ) from error
        if record.key.name != name or record.spec != spec:
            raise Conflict(
                f"the idempotency key has made another {resource.type.name}, {record.key.name}",
                field="Idempotency-Key", allowed=f"a key for each {resource.type.name}",
            )  # fmt: skip
        return record

    def list(
        self,
        scope: str | None,
        *,
        phases: Collection[str] | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> tuple[Sequence[ViewT], int | None]:
        """A page of views, newest first, and the cursor of the next page.

        Args:
            scope: Whose.
            phases: Only those in one of these, in any case; each may be several with commas.
            after: The cursor of the page before.
            limit: At most this many.

        Raises:
            InvalidRequest: There is no such phase.
        """
        page: Page[Summary] = self._store.list(
            self._kind, org=scope, indexes=self._known(phases), after=after, limit=limit
        )
        records = (self._store.get(self._kind, line.key.uid) for line in page.items)
        resource = self._resource
        shown = [resource.in_list(resource.view(each)) for each in records if each is not None]
        return shown, page.next

    def _known(self, phases: Collection[str] | None) -> Collection[str] | None:
        if phases is None or not self._resource.phases:
            return phases
        known = {each.lower(): each for each in self._resource.phases}
        words = [word.strip() for each in phases for word in each.split(",")]
        for word in words:
            if word.lower() not in known:
                raise common.refuse("phase", word, ", ".join(self._resource.phases))
        return {known[word.lower()] for word in words}

    def find(self, scope: str | None, name: str) -> Record[S, T]:
        """The one of that name, else of that uid. Under ``None`` only uids are unique.

        Raises:
            NotFound: There is none, or it is somebody else's.
        """
        if len(name) <= _LONGEST_NAME and common.NAME.fullmatch(name):
            record = self._store.find(self._kind, scope, name) if scope is not None else None
            record = record or self._store.get(self._kind, name)
            if record is not None and scope in (None, record.key.org):
                return record
        shown = name[:_LONGEST_NAME]
        raise NotFound(
            f"there is no {self._resource.type.name} {shown}",
            field="name",
            value=shown,
            hint=UNDER_ALL if scope is None else None,
        )

    def act(
        self,
        scope: str | None,
        name: str,
        action: str,
        caller: Identity,
        body: Any = None,
        *,
        once: Once | None = None,
    ) -> Record[S, T]:
        """Ask for an action of the type, with what it takes. What was asked for already is success.

        Raises:
            Forbidden: The caller's role may not.
            NotFound: There is none.
            Conflict: It has ended.
            InvalidRequest: What the action takes is wrong.
        """
        permit(caller, self._resource.operation)
        record, now, described = self.find(scope, name), self._clock(), self._resource.type
        phase = self._kind.index_of(record.status)
        ended = described.succeeded | described.failed
        if phase in ended - described.at_end.get(action, frozenset()):
            possible = [name for name, phases in described.at_end.items() if phase in phases]
            raise Conflict(
                f"{record.key.name} is {phase}: there is nothing to {action}",
                field="phase",
                allowed=", ".join([*possible, f"or a new {described.name} of another name"]),
            )
        event = Event(
            now, f"{action.capitalize()}Requested", f"{action} requested by {caller.user}"
        )
        if act := self._resource.record_actions.get(action):
            return self._store.change_spec_of_record(
                self._kind,
                record.key.uid,
                lambda found: _with_events(act(found, body), event),
                now=now,
                once=once,
            )
        change = self._resource.actions[action]
        return self._store.change_spec(
            self._kind,
            record.key.uid,
            change if action not in described.bodies else lambda spec: change(spec, body),
            now=now,
            events=[event],
            once=once,
        )

    def delete(
        self, scope: str | None, name: str, caller: Identity, *, once: Once | None = None
    ) -> Record[S, T]:
        """Ask for removal. What has no controller is gone at once.

        Raises:
            Forbidden: The caller's role may not.
            NotFound: There is none.
        """
        permit(caller, self._resource.operation)
        record, now = self.find(scope, name), self._clock()
        event = Event(now, "DeleteRequested", f"deletion requested by {caller.user}")
        record = self._store.request_delete(
            self._kind, record.key.uid, now=now, events=[event], once=once
        )
        if not self._resource.has_controller:
            self._store.delete(self._kind, record.key.uid, fence=None)
        return record

    def events(self, record: Record[S, T], *, after: int = 0) -> Sequence[Event]:
        """What was said about it, those with ``id > after``."""
        return self._store.events(record.key.uid, after=after)


def _with_events(
    changed: tuple[S, Sequence[tuple[str, str]]], requested: Event
) -> tuple[S, Sequence[Event]]:
    spec, notes = changed
    warnings = [Event(requested.at, reason, text, EventType.WARNING) for reason, text in notes]
    return spec, [requested, *warnings]
