"""Who is calling: every signature scheme, judged on the request line as it came, and access
tokens.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

from fastapi import Depends, Query
from starlette.requests import HTTPConnection, Request

from cloud_ml.api import auditing, job_endpoint, scopes, tokens
from cloud_ml.api.middleware import CALLER
from cloud_ml.api.platform import Platform
from cloud_ml.auth import basic, bearer, claims, fds, legacy, presigned, signature
from cloud_ml.auth.claims import Claim
from cloud_ml.auth.headers import Headers
from cloud_ml.errors import TooLarge, TooMany, Unauthenticated
from cloud_ml.state.base import Once
from cloud_ml.usecases.access.identities import Identity
from cloud_ml.usecases.access.permissions import permit_change
from cloud_ml.usecases.access.tokens import permit_scope

_SAFE = frozenset({"GET", "HEAD"})
_ORIGINAL = frozenset({legacy.SCHEME, fds.SCHEME})
"""Schemes of the original clients: an operator may switch them off, for all or for a key."""

Reader = Callable[[Headers], Claim]
"""Says what a request claims; which one it is decides which schemes open a room."""
Proof = Claim | bearer.Credentials
"""What made the server believe a caller: a signature or a token."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request that convinced. ``once`` is set for mutations and belongs into their
    transaction.
    """

    caller: Identity
    once: Once | None
    body: bytes = b""

    @property
    def org(self) -> str:
        """The caller's organisation."""
        return self.caller.org


class UploadCall:
    """A request that convinced and whose body is still to come."""

    def __init__(self, caller: Identity, once: Once, claim: Proof, request: Request) -> None:
        self.caller = caller
        self.once = once
        self._claim = claim
        self._request = request
        self._digest: Any = (
            hashlib.new(claim.body_hash, usedforsecurity=False) if claim.signs_body else None
        )

    def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body as it arrives."""
        return self._request.stream()

    def digest(self, chunk: bytes) -> None:
        """Take note of a chunk. Long chunks let other threads run."""
        if self._digest is not None:
            self._digest.update(chunk)

    def check(self) -> None:
        """Compare what came with what was signed.

        Raises:
            Unauthenticated: They differ.
        """
        if self._digest is not None:
            self._claim.check_body(self._digest.hexdigest())


def platform_of(connection: HTTPConnection) -> Platform:
    """The platform behind the app."""
    platform: Platform = connection.app.state.platform
    return platform


async def signed(request: Request) -> Call:
    """Establish the caller. Everything but GET and HEAD counts as a mutation."""
    return await admit(request, mutation=request.method not in _SAFE)


async def signed_mutation(request: Request) -> Call:
    """The same for a GET that changes something."""
    return await admit(request, mutation=True)


async def signed_question(request: Request) -> Call:
    """The same for a POST that changes nothing."""
    return await admit(request, mutation=False)


async def signed_upload(request: Request) -> UploadCall:
    """Establish the caller and leave the body to be streamed."""
    return await admit_upload(request)


async def link_parameters(
    _key: Annotated[str | None, Query(alias=presigned.KEY)] = None,
    _expires: Annotated[str | None, Query(alias=presigned.EXPIRES)] = None,
    _signature: Annotated[str | None, Query(alias=presigned.SIGNATURE)] = None,
) -> None:
    """What a link has in its query; named here so that routes know and describe it."""


Linkable = Depends(link_parameters)


async def signed_or_linked(request: Request, _: None = Linkable) -> Call:
    """Establish the caller by a signature, or by a link to this very object."""
    read = _link_reader(request)
    return (
        await signed(request) if read is None else await admit(request, mutation=False, read=read)
    )


async def signed_or_linked_upload(request: Request, _: None = Linkable) -> UploadCall:
    """The same, with the body left to be streamed."""
    read = _link_reader(request)
    return await signed_upload(request) if read is None else await admit_upload(request, read=read)


Signed = Annotated[Call, Depends(signed)]
SignedMutation = Annotated[Call, Depends(signed_mutation)]
SignedQuestion = Annotated[Call, Depends(signed_question)]
SignedUpload = Annotated[UploadCall, Depends(signed_upload)]
SignedOrLinked = Annotated[Call, Depends(signed_or_linked)]
SignedOrLinkedUpload = Annotated[UploadCall, Depends(signed_or_linked_upload)]


async def admit(request: Request, *, mutation: bool, read: Reader = claims.read) -> Call:
    """Establish the caller and take in the body.

    Raises:
        Unauthenticated: Time, signature or body do not convince.
        TooLarge: The body is larger than a document may be.
    """
    claim, caller = await _convince(request, mutation, read)
    if isinstance(claim, signature.Claim) and claim.content == signature.UNSIGNED_PAYLOAD:
        raise Unauthenticated(
            "the body of this request must be signed",
            field=signature.CONTENT,
            allowed="the body's SHA-256; only uploads of objects may be unsigned",
        )
    body = await _body(request, platform_of(request).settings.body_limit_bytes)
    # Not for security: the original schemes sign an MD5, which Python refuses otherwise where the
    # system is in FIPS mode.
    claim.check_body(hashlib.new(claim.body_hash, body, usedforsecurity=False).hexdigest())
    if mutation:
        auditing.note_body(request, body)
    return Call(caller, _once(request, caller, claim) if mutation else None, body)


async def admit_upload(request: Request, *, read: Reader = claims.read) -> UploadCall:
    """Establish the caller of a mutation and leave the body to be streamed.

    Raises:
        Unauthenticated: Time or signature do not convince.
    """
    claim, caller = await _convince(request, True, read)
    return UploadCall(caller, _once(request, caller, claim), claim, request)


async def _convince(request: Request, mutation: bool, read: Reader) -> tuple[Proof, Identity]:
    """Check time, signature and whether the caller may change anything, before a byte of the body
    is taken in.

    Raises:
        Unauthenticated: They do not convince.
        TooMany: The organisation has too many requests under way.
        Forbidden: The request changes something and the caller may only look.
    """
    headers = [
        (name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw
    ]
    platform = platform_of(request)
    if job_endpoint.comes_from_job(request):
        caller = await job_endpoint.authenticate(request, platform, headers)
        _admit_caller(request, platform, caller, mutation)
        permit_scope(caller, scopes.needed_by(request, mutation=mutation))
        return bearer.Credentials(bearer.read_nonce(headers)), caller
    if bearer.is_sent(headers):
        caller = await tokens.authenticate(request, platform, headers)
        _admit_caller(request, platform, caller, mutation)
        permit_scope(caller, scopes.needed_by(request, mutation=mutation))
        return bearer.Credentials(bearer.read_nonce(headers)), caller
    if basic.is_sent(headers) and request.scope["path"].startswith(tokens.MLFLOW):
        caller = await tokens.authenticate_user(request, platform, headers)
        _admit_caller(request, platform, caller, mutation)
        return bearer.Credentials(), caller
    claim, caller = await _verify(request, platform, read(headers), mutation)
    _admit_caller(request, platform, caller, mutation)
    return claim, caller


async def _verify(
    request: Request, platform: Platform, claim: Claim, mutation: bool
) -> tuple[Claim, Identity]:
    """Check the time and the signature of a claim.

    Raises:
        Unauthenticated: They do not convince.
    """
    rules = platform.settings
    if claim.scheme in _ORIGINAL and not rules.legacy_signatures:
        raise _legacy_is_off("on this server")
    caller = platform.identities.cached(claim.key)
    if caller is None:
        caller = await platform.read(platform.identities.find, claim.key)
    window_s = claims.window_s(
        claim,
        mutation=mutation,
        normal_s=rules.signature_window_s,
        bodyless_legacy_s=rules.legacy_bodyless_window_s,
    )
    claim.verify(
        caller.secret if caller is not None else None,
        method=request.method,
        target=_target(request),
        now=platform.clock(),
        window_s=window_s,
    )
    if caller is None:  # never: ``verify`` refuses a claim without a secret
        raise Unauthenticated(legacy.WRONG)
    # After the signature: only who holds the key learns what it accepts.
    if claim.scheme == legacy.SCHEME and not caller.legacy_signatures:
        raise _not_for_this_key("the original client", "--legacy")
    if claim.scheme == fds.SCHEME and not caller.fds_signatures:
        raise _not_for_this_key("FDS clients", "--fds")
    return claim, caller


def _admit_caller(request: Request, platform: Platform, caller: Identity, mutation: bool) -> None:
    """Count the request, and stop a change by somebody who may only look.

    Raises:
        TooMany: The organisation has too many requests under way.
        Forbidden: The request changes something and the caller may only look.
    """
    # Before the count and its refusal: ``Envelope`` counts back for each request that has a caller.
    request.scope[CALLER] = caller
    platform.under_way[caller.org] += 1  # until ``Envelope`` sees the end of the answer
    most = platform.settings.requests_per_org
    if platform.under_way[caller.org] > most:
        raise TooMany(
            f"{caller.org} has {most} requests under way already",
            allowed=f"at most {most} at once",
            hint="wait for some of them to end",
        )
    if mutation:
        # Before the check of rights: a change that is refused is noted, too.
        auditing.begin(request, caller, platform.clock())
        permit_change(caller)


def is_link(request: Request) -> bool:
    """Whether the request is made with a link: with the proof in the query and none in the
    headers.
    """
    query: bytes = request.scope["query_string"]
    return presigned.SIGNATURE.encode() in query and "authorization" not in request.headers


def _link_reader(request: Request) -> Reader | None:
    """Reads a link, if the request is one."""
    if not is_link(request):
        return None
    query = request.scope["query_string"].decode("latin-1")
    longest_s = platform_of(request).storage_settings.presign_limit_s
    return lambda _headers: presigned.Claim.from_query(query, longest_s=longest_s)


def _once(request: Request, caller: Identity, claim: Proof) -> Once:
    platform = platform_of(request)
    window_s = platform.settings.signature_window_s
    if isinstance(claim, bearer.Credentials):
        now = platform.clock()
        # Without a nonce there is nothing to recognise a second try by: the text is new each time.
        text = f"{bearer.SCHEME}/{caller.token}/{claim.nonce or secrets.token_hex()}"
        return Once(
            text,
            now + timedelta(seconds=window_s if claim.nonce else 0),
            auditing.entry_of(request),
        )
    token = claim.once_token(request.method, _target(request))
    return Once(token, claims.forget_at(claim, window_s), auditing.entry_of(request))


def _target(request: Request) -> str:
    """Path and query as they stood on the request line, undecoded."""
    path: bytes = request.scope["raw_path"]
    query: bytes = request.scope["query_string"]
    return (path + b"?" + query if query else path).decode("latin-1")


async def _body(request: Request, limit: int) -> bytes:
    announced = request.headers.get("content-length", "")
    # `int` refuses more than 4,300 digits with a ValueError (CVE-2020-10735).
    if announced.isascii() and announced.isdigit() and int(announced[:20]) > limit:
        raise _too_large(limit)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise _too_large(limit)
    return bytes(body)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(
        f"the body is larger than {limit} bytes", field="body", allowed=f"at most {limit} bytes"
    )


def _legacy_is_off(where: str) -> Unauthenticated:
    return Unauthenticated(
        f"signatures of the original clients are switched off {where}",
        field="Authorization",
        allowed=signature.SCHEME,
    )


def _not_for_this_key(whose: str, option: str) -> Unauthenticated:
    """The original client prints the answer as it is, so the message names the way out, too."""
    return Unauthenticated(
        f"this access key does not accept signatures of {whose}: create one with `cloudml admin "
        f"keys create {option}`, or allow it with `cloudml admin keys update ACCESS_KEY {option}`",
        field="Authorization",
        allowed=signature.SCHEME,
    )
