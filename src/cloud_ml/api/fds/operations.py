"""The operations of the storage protocol that this server has. All others are refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from cloud_ml.api.fds import buckets, multipart, objects
from cloud_ml.api.fds.fds_request import FdsRequest, Level
from cloud_ml.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Operation:
    """What a method means at a level.

    The query tells operations apart, so its names must be those of ``required`` and at most those
    of ``optional`` beside them: a request is never taken for another one than it is.
    """

    method: str
    level: Level
    run: Callable[[FdsRequest], Awaitable[Response]]
    required: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()

    def fits(self, request: FdsRequest) -> bool:
        """Whether the request asks for this operation."""
        names = request.query.keys()
        return (
            (request.http.method, request.level) == (self.method, self.level)
            and names >= self.required
            and names <= self.required | self.optional
        )


OPERATIONS = (
    Operation(
        "GET", Level.SERVICE, buckets.list_buckets, optional=frozenset({"authorizedBuckets"})
    ),
    Operation("HEAD", Level.BUCKET, buckets.exists),
    Operation("GET", Level.BUCKET, buckets.describe),
    Operation(
        "GET",
        Level.BUCKET,
        buckets.list_objects,
        frozenset({"prefix"}),
        frozenset({"delimiter", "marker", "maxKeys"}),
    ),
    Operation("PUT", Level.BUCKET, buckets.create),
    Operation("HEAD", Level.OBJECT, objects.head),
    Operation("GET", Level.OBJECT, objects.download),
    Operation("GET", Level.OBJECT, objects.metadata, required=frozenset({"metadata"})),
    Operation("PUT", Level.OBJECT, objects.upload),
    Operation("PUT", Level.OBJECT, multipart.initiate, required=frozenset({"uploads"})),
    Operation(
        "PUT", Level.OBJECT, multipart.put_part, required=frozenset({"uploadId", "partNumber"})
    ),
    Operation("PUT", Level.OBJECT, multipart.complete, required=frozenset({"uploadId"})),
    Operation("DELETE", Level.OBJECT, multipart.abort, required=frozenset({"uploadId"})),
    Operation("DELETE", Level.OBJECT, objects.delete, optional=frozenset({"enableTrash"})),
)

_HINT = "see 'cloudml storage --help' for what can be done with storage"


async def answer(request: Request) -> Response:
    """Answer one request.

    Raises:
        Unauthenticated: It does not convince; found out first.
        InvalidRequest: It asks for something else.
    """
    fds_request = FdsRequest.of(request)
    for operation in OPERATIONS:
        if operation.fits(fds_request):
            request.scope["cloud_ml.operation"] = operation.run
            return await operation.run(fds_request)
    await fds_request.signed()
    what = f"{request.method} of {fds_request.level.value}"
    if not fds_request.query:
        raise InvalidRequest(f"this server has no {what}", field="method", hint=_HINT)
    names = list(fds_request.query)
    raise InvalidRequest(
        f"this server has no {what} with {', '.join(name[:40] for name in names[:10])} in the "
        "query",
        field="query",
        hint=_HINT,
    )
