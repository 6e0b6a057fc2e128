"""A request of the storage protocol: its bucket, key and query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from urllib.parse import parse_qsl

from starlette.requests import Request

from cloud_ml.api import auth
from cloud_ml.api.auth import Call, UploadCall, platform_of
from cloud_ml.api.platform import Platform
from cloud_ml.auth import fds
from cloud_ml.errors import InvalidRequest
from cloud_ml.models import common

_KEPT = frozenset({fds.OWN_DATE, fds.PREFIX + "multipart-upload-mode"})
"""Headers of the protocol that an upload may carry; the others ask for what this server does not
do.
"""


class Level(Enum):
    """What a path names."""

    SERVICE = "the service"
    BUCKET = "a bucket"
    OBJECT = "an object"


@dataclass(frozen=True, slots=True)
class FdsRequest:
    """A request with its bucket, key and query."""

    http: Request
    bucket: str
    key: str
    query: Mapping[str, str]

    @classmethod
    def of(cls, request: Request) -> FdsRequest:
        """Read the path as it was signed: decoded once.

        Raises:
            Unauthenticated: The path cannot be signed.
            InvalidRequest: A name in the query is given twice.
        """
        raw_path: bytes = request.scope["raw_path"]
        bucket, _, key = (
            fds.decode_path(raw_path.decode("latin-1")).removeprefix("/").partition("/")
        )
        pairs = parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if len(query := dict(pairs)) != len(pairs):
            raise InvalidRequest(
                "a name in the query is given twice", field="query", allowed="each name once"
            )
        return cls(request, bucket, key, query)

    @property
    def level(self) -> Level:
        """What the path names."""
        if self.key:
            return Level.OBJECT
        return Level.BUCKET if self.bucket else Level.SERVICE

    @property
    def here(self) -> Platform:
        """The platform."""
        return platform_of(self.http)

    async def signed(self) -> Call:
        """Establish the caller; see ``auth.admit``. Everything but GET and HEAD counts as a
        mutation.
        """
        mutation = self.http.method not in ("GET", "HEAD")
        return await auth.admit(self.http, mutation=mutation, read=fds.Claim.from_headers)

    async def signed_upload(self) -> UploadCall:
        """Establish the caller and leave the body to be streamed; see ``auth.admit_upload``.

        Raises:
            InvalidRequest: A header asks for what would be lost, such as metadata.
        """
        call = await auth.admit_upload(self.http, read=fds.Claim.from_headers)
        self.check_headers()
        return call

    def check_headers(self) -> None:
        """Refuse headers of an upload that ask for what would be lost.

        Raises:
            InvalidRequest: One does, such as metadata.
        """
        for name, value in self.http.headers.items():
            if value and name.startswith(fds.PREFIX) and name not in _KEPT:
                raise common.refuse(
                    name[:80], value[:80], "nothing: this server keeps an object's bytes only"
                )
