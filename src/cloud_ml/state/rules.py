"""What every store decides alike: pure rules, and the words of its refusals."""

from __future__ import annotations

import functools
import json
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from cloud_ml.domain.audit import MOST_CHARACTERS, AuditEntry
from cloud_ml.domain.records import Kind, ParentRef
from cloud_ml.domain.spec_changes import describe_change
from cloud_ml.domain.tenancy import SYSTEM
from cloud_ml.errors import (
    AlreadyExists,
    Conflict,
    FenceLost,
    InvalidRequest,
    NotFound,
    SeenBefore,
    StaleRevision,
)
from cloud_ml.models import codec
from cloud_ml.models.common import is_unicode, refuse, with_article
from cloud_ml.state.base import Fence, Lease, Once

S = TypeVar("S")
V = TypeVar("V")

MAX_PAGE = 1000
MAX_INDEXES = 100
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_KEPT, _KEPT_CHARACTERS = 512, 16_384
"""How many documents are kept decoded, none longer than so much."""
MOST_TAG_BYTES, MOST_NAME_BYTES = 2400, 600
"""What stands in an index of PostgreSQL, which takes some 2,700 bytes a row."""
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Retention:
    """How long marks are kept that outlive their record; ``prune`` drops older ones. And how
    many events.
    """

    idempotency_keys: timedelta = timedelta(days=30)
    """So long is a repeated submit recognised by its key."""
    deletions: timedelta = timedelta(days=7)
    """So long may a follower of the feed be away and still hear of every deletion."""
    audit: timedelta | None = timedelta(days=365)
    """So long is it known who did what; ``None`` means for ever."""
    record_events: int = 1000
    """A record keeps its newest events, this many at most: one page."""


RETENTION = Retention()


def utc_now() -> datetime:
    """The machine's clock."""
    return datetime.now(UTC)


def new_uid() -> str:
    """A name that is unique for all time, safe in file names and host names."""
    return uuid.uuid4().hex


def check_page(limit: int, indexes: Collection[str] | None) -> None:
    """Refuse pages that are too large.

    Raises:
        InvalidRequest: ``limit`` or the number of ``indexes`` is out of range.
    """
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidRequest(
            f"limit is {limit}; allowed is 1 to {MAX_PAGE}",
            field="limit",
            value=limit,
            allowed=f"1 to {MAX_PAGE}",
        )
    if indexes is not None and len(indexes) > MAX_INDEXES:
        raise InvalidRequest(
            f"indexes has {len(indexes)} values; allowed are at most {MAX_INDEXES}",
            field="indexes",
            value=len(indexes),
            allowed=f"at most {MAX_INDEXES} values",
        )


def to_text(decode: Callable[[Any], V], value: V) -> str:
    """A spec or a status as it is stored: compact JSON, plain ASCII.

    It is read back at once: what is written can be read, or is not written.

    Raises:
        InvalidRequest: ``value`` holds something that its type does not allow.
        ValueError: It holds a number that JSON lacks (infinite, or none at all).
    """
    text = _ENCODER.encode(codec.encode(value))
    from_text(decode, text)
    return text


def from_text(decode: Callable[[Any], V], text: str) -> V:
    """The reverse of ``to_text``. What is decoded is kept for a while, and nobody alters it.

    Raises:
        InvalidRequest: It is not of that type.
        ValueError: It is no JSON.
    """
    if len(text) > _KEPT_CHARACTERS:
        return decode(json.loads(text))
    value: V = _decode_cached(decode, text)
    return value


@functools.lru_cache(_KEPT)
def _decode_cached(decode: Callable[[Any], Any], text: str) -> Any:
    """Documents are read far more often than written, a job's some twenty times."""
    return decode(json.loads(text))


def printable(text: str) -> str:
    """``text`` without what databases refuse: zero bytes and halves of surrogate pairs.

    Sentences may quote what a user's process wrote, and no transition may fail for that.
    """
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def is_storable(*texts: str | None) -> bool:
    """Whether a database could hold all of these. What it could not hold, it does not have."""
    for text in texts:  # noqa: SIM110 - asked for each read; a generator costs more
        if text and ("\x00" in text or not (text.isascii() or is_unicode(text))):
            return False
    return True


def check_names(words: Collection[str], **names: str) -> None:
    """Refuse what a database cannot hold, or not in an index.

    Args:
        words: Tags of a record.
        names: Its name, organisation and the like.

    Raises:
        InvalidRequest: One cannot be held.
    """
    for field, text in names.items():
        if not is_storable(text) or len(text.encode()) > MOST_NAME_BYTES:
            raise refuse(
                field, text, f"a Unicode text of at most {MOST_NAME_BYTES} bytes without NUL"
            )
    for word in words:
        if len(word.encode("utf-8", "replace")) > MOST_TAG_BYTES:
            name = word.partition("=")[0]
            raise refuse(
                "tag", word, f"at most {MOST_TAG_BYTES} bytes for {name[:80]} and its value"
            )


def bound_entry(entry: AuditEntry) -> AuditEntry:
    """The entry as it is stored: its texts bounded, without what databases refuse."""
    values = {field.name: getattr(entry, field.name) for field in fields(entry)}
    texts: dict[str, Any] = {
        name: printable(text)[:MOST_CHARACTERS]
        for name, text in values.items()
        if isinstance(text, str)
    }
    return replace(entry, **texts)


def with_change(once: Once | None, before: object, after: object) -> Once | None:
    """The mark of a request, whose entry in the audit log says what the request changes."""
    if once is None or once.entry is None:
        return once
    return replace(once, entry=replace(once.entry, change=describe_change(before, after)))


def next_lease(
    current: Lease | None,
    name: str,
    holder: str,
    *,
    ttl_s: float,
    now: datetime,
    abandoned: bool = False,
) -> Lease | None:
    """The lease ``holder`` gets now, or ``None`` while somebody else holds it.

    An expired lease starts a new epoch even for the one who held it: others may have been told
    meanwhile that it is free. So does one that is abandoned, see ``LeaseObservations``.
    """
    expires_at = now + timedelta(seconds=ttl_s)
    if current is None:
        return Lease(name, holder, 1, expires_at)
    if current.expires_at <= now:
        return Lease(name, holder, current.epoch + 1, expires_at)
    if current.holder == holder:
        return Lease(name, holder, current.epoch, expires_at)
    if abandoned:
        return Lease(name, holder, current.epoch + 1, expires_at)
    return None


def check_fence(fence: Fence, epoch: int | None) -> None:
    """Compare a fence with the lease's present epoch.

    Raises:
        FenceLost: It differs, or there is no such lease (an older backup was restored).
    """
    if epoch != fence.epoch:
        raise FenceLost(
            f"lease {fence.name!r} has passed on: epoch {fence.epoch} was shown, "
            f"{epoch or 'none'} is in force"
        )


def name_taken(kind: Kind[S, Any], org: str, name: str, spec: S, stored: S) -> AlreadyExists:
    """A living record has the name."""
    one = with_article(_words_of(kind))
    return AlreadyExists(
        f"there is {one} named {name!r} already"
        if org == SYSTEM  # which users do not know as an organisation
        else f"{org} has {one} named {name!r} already",
        same_spec=spec == stored,
        field="name",
        value=name,
        allowed="a name that is not in use",
    )


def record_gone(kind: Kind[Any, Any], key: str) -> Conflict:
    """An idempotency key was used for a record that no longer exists."""
    return Conflict(
        f"idempotency key {key!r} made {with_article(_words_of(kind))} that has been deleted since",
        field="idempotency_key",
        value=key,
        allowed="a new key",
    )


def not_found(kind: Kind[Any, Any], uid: str) -> NotFound:
    """There is no such record."""
    return NotFound(f"there is no {_words_of(kind)} {uid!r}")


def _words_of(kind: Kind[Any, Any]) -> str:
    return kind.name.replace("_", " ")


def no_run(uid: str) -> NotFound:
    """Points belong to a record that is there."""
    return NotFound(f"there is no run {uid!r}")


def read_already(uid: str, task: str) -> StaleRevision:
    """Somebody else has read the file of reports meanwhile."""
    return StaleRevision(f"the reports of {task} in run {uid!r} were read by somebody else")


def no_parent(parent: ParentRef) -> NotFound:
    """A record cannot be made for one that is not there."""
    return NotFound(f"there is no {parent.kind} {parent.uid!r} to make this for")


def has_children(kind: Kind[Any, Any], uid: str) -> Conflict:
    """A record stays until those that were made for it are gone."""
    return Conflict(f"{kind.name} {uid!r} is the parent of records that are still there")


def stale(kind: Kind[Any, Any], uid: str, expected: int) -> StaleRevision:
    """The record moved on, or is gone."""
    return StaleRevision(f"{kind.name} {uid!r} is no longer at revision {expected}")


def seen_before() -> SeenBefore:
    """The request was made before. The token stays unsaid: it may be a signature."""
    return SeenBefore("this very request was made before; sign it again")
