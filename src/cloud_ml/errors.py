"""Everything that may go wrong, as one tree. Each error carries a stable ``code``.

::

    CloudMlError
    ├── RequestError                what the caller asked for cannot be done as asked; asking again is no help
    │   ├── InvalidRequest          invalid           a field is wrong: names field, value, what is allowed
    │   ├── Unauthenticated         unauthenticated   who is asking could not be established
    │   │   └── SeenBefore          seen_before       a request with this nonce was carried out already
    │   ├── Forbidden               forbidden         known, but not allowed
    │   │   └── QuotaExceeded       quota_exceeded    the organisation's quota has no room for it
    │   ├── NotFound                not_found         absent, or somebody else's: the answers are identical
    │   ├── AlreadyExists           already_exists    the name is taken
    │   ├── Conflict                conflict          not possible in the present state
    │   │   └── PreconditionFailed  precondition_failed  If-Match names another version
    │   ├── StartAgain              start_again       what was to be gone on with is of a database that was replaced
    │   └── TooLarge                too_large         a body, a file or an archive is over its limit
    ├── TryAgain                    asking again later may succeed
    │   ├── StaleRevision           stale_revision    somebody wrote in between
    │   ├── FenceLost               fence_lost        another controller has taken over
    │   ├── TooMany                 too_many          the caller does too much at once
    │   ├── Unavailable             unavailable       a part that is needed does not answer
    │   └── OutOfSpace              out_of_space      the disk is full or read-only
    ├── Damaged                     damaged           stored data cannot be trusted; the server stops
    ├── TransportError              transport         the server could not be reached or spoke nonsense
    └── WaitTimedOut                wait_timed_out    a job has not ended in the time that the caller gave it
"""

from __future__ import annotations

from typing import Any, ClassVar


class CloudMlError(Exception):
    """Base of every error of ours.

    Args:
        message: One sentence for a person: what happened, what was expected.
        field: The field of the request that is at fault, dotted for nested ones.
        value: The value that was refused. Never a secret.
        allowed: What would have been accepted, in words.
        hint: What to do next.
        public_message: What callers of the API get in place of ``message``, which has a path or an
            address of the server.
    """

    code: ClassVar[str] = "internal"

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        value: Any = None,
        allowed: str | None = None,
        hint: str | None = None,
        public_message: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.value = value
        self.allowed = allowed
        self.hint = hint
        self.public_message = public_message

    @property
    def user_message(self) -> str:
        """The message for users, without paths and addresses of the server."""
        return self.public_message or self.message

    def document(self) -> dict[str, Any]:
        """The error as both HTTP surfaces answer it."""
        document: dict[str, Any] = {
            "error": True,
            "code": self.code,
            "message": self.user_message,
        }
        for name in ("field", "value", "allowed", "hint"):
            if (fact := getattr(self, name)) is not None:
                document[name] = fact
        return document


class RequestError(CloudMlError):
    """What was asked cannot be done as asked."""

    code = "bad_request"


class InvalidRequest(RequestError):
    """A field is missing, malformed or out of range."""

    code = "invalid"


class Unauthenticated(RequestError):
    """The signature, the key or the clock does not convince."""

    code = "unauthenticated"


class SeenBefore(Unauthenticated):
    """A request with this nonce was carried out already: a replay, or a retry after a lost
    answer.
    """

    code = "seen_before"


class Forbidden(RequestError):
    """The caller is known and may not do this."""

    code = "forbidden"


class QuotaExceeded(Forbidden):
    """The organisation's quota has no room for it, however long one waited."""

    code = "quota_exceeded"


class NotFound(RequestError):
    """Absent, or not visible to the caller; the two are told apart nowhere."""

    code = "not_found"


class AlreadyExists(RequestError):
    """The name is taken.

    ``same_spec`` tells whether what stands under the name equals what was asked for, so that a
    client that lost an answer knows whether its first try arrived.
    """

    code = "already_exists"

    def __init__(self, message: str, *, same_spec: bool | None = None, **facts: Any) -> None:
        super().__init__(message, **facts)
        self.same_spec = same_spec

    def document(self) -> dict[str, Any]:
        """The error as both HTTP surfaces answer it."""
        document = super().document()
        if self.same_spec is not None:
            document["same_spec"] = self.same_spec
        return document


class Conflict(RequestError):
    """Not possible in the present state of the resource."""

    code = "conflict"


class PreconditionFailed(Conflict):
    """The resource has another version than the one that ``If-Match`` names."""

    code = "precondition_failed"


class StartAgain(RequestError):
    """What was to be gone on with is of a database that was replaced by a backup: list anew, and
    go on from there.
    """

    code = "start_again"


class TooLarge(RequestError):
    """A body, a file or an archive is over its limit."""

    code = "too_large"


class TryAgain(CloudMlError):
    """The same request may succeed later."""

    code = "try_again"


class StaleRevision(TryAgain):
    """The record changed since it was read."""

    code = "stale_revision"


class FenceLost(TryAgain):
    """The lease behind this write has passed to somebody else."""

    code = "fence_lost"


class TooMany(TryAgain):
    """The caller does more at once than one may."""

    code = "too_many"


class Unavailable(TryAgain):
    """A part that is needed does not answer at present."""

    code = "unavailable"


class OutOfSpace(TryAgain):
    """The disk is full or read-only: new work is refused, reads go on."""

    code = "out_of_space"


class Damaged(CloudMlError):
    """Stored data cannot be trusted. The message names the file and the command that restores
    it.
    """

    code = "damaged"


class TransportError(CloudMlError):
    """The server could not be reached, or what came back was not one of its answers."""

    code = "transport"


class WaitTimedOut(CloudMlError):
    """The job has not ended within the time that the caller gave it; it goes on."""

    code = "wait_timed_out"
