"""What a request says of itself before anybody believes it."""

from __future__ import annotations

import contextlib
import secrets
from datetime import UTC, datetime, timedelta

from starlette.requests import Request

from cloud_ml.api import conditional, content, parameters, ranges
from cloud_ml.api.fds.fds_request import FdsRequest
from cloud_ml.auth import claims, fds, legacy, presigned, signature
from cloud_ml.errors import InvalidRequest, Unauthenticated
from cloud_ml.net.http1 import cors
from cloud_ml.net.http1.heads import Head
from cloud_ml.observability import requests
from cloud_ml.sdk import retries
from cloud_ml.sdk.storage import uris
from cloud_ml.serving.call_metrics import Histogram
from cloud_ml.serving.rest import exposition
from fuzz.harness import pieces, target, text

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
KEY, SECRET = "AKfuzz", "a secret"
SIGNED = signature.sign("PUT", "/api/v1/x?b=1&a=2", key=KEY, secret=SECRET, now=NOW, nonce="n" * 20)
ORIGINAL = {
    legacy.KEY: KEY, legacy.DATE: str(int(NOW.timestamp())), legacy.CONTENT: legacy.EMPTY_MD5,
    legacy.AUTHORIZATION: f"{legacy.SCHEME} "
    + legacy.signature("/cloud_ml/v1/train", str(int(NOW.timestamp())), legacy.EMPTY_MD5, SECRET),
}  # fmt: skip
STORAGE = fds.sign(
    "PUT",
    "/b/k?uploads",
    key=KEY,
    secret=SECRET,
    when="Sat, 31 Jan 2026 12:00:00 GMT",
    headers={"Content-Type": "text/plain", "X-Xiaomi-Meta": "x"},
)
LINK = presigned.sign(
    "GET", "/api/v1/storage/b/k", key=KEY, secret=SECRET, expires=int(NOW.timestamp()) + 60
)


def _lines(headers: dict[str, str]) -> str:
    return "".join(f"{name}: {value}\n" for name, value in headers.items())


def _pairs(data: bytes) -> list[tuple[str, str]]:
    lines = data.decode("latin-1").split("\n")
    return [
        (name, value.strip(" "))
        for name, _, value in (line.partition(":") for line in lines if line)
    ]


@target(
    "auth.headers",
    "auth.signature",
    "auth.fds",
    seeds=[_lines(SIGNED), _lines(ORIGINAL), _lines(STORAGE), "Authorization: Galaxy-V2 a:b\nDate: "
                                                              "x"],
    words=[*SIGNED, *ORIGINAL, *STORAGE, signature.SCHEME + " ", legacy.SCHEME + " ", fds.SCHEME + " ", b"\xb2",
           "999999999999", "Mon, 99 Feb 0000 25:61:61 GMT"],
)  # fmt: skip
def claim(data: bytes) -> None:
    """Refused as unauthenticated; or read, and believed by nobody who does not know the secret."""
    for read in (claims.read, fds.Claim.from_headers):
        try:
            one = read(_pairs(data))
        except Unauthenticated as error:
            assert len(str(error)) < 600  # noqa: PT017
            continue
        claims.forget_at(one, 300)
        assert one.once_token("PUT", "/x") == one.once_token("PUT", "/x")
        claims.window_s(one, mutation=True, normal_s=300, bodyless_legacy_s=10)
        for secret in (None, secrets.token_hex()):
            for method, path in (("PUT", "/api/v1/x"), ("put", "x"), ("GET", "/%ff%3f?\x7f")):
                with contextlib.suppress(Unauthenticated):
                    one.verify(secret, method=method, target=path, now=NOW, window_s=1e12)
                    raise AssertionError("believed without the secret")


@target(
    "auth.presigned",
    seeds=[LINK.partition("?")[2], "X-Cloudml-Key=a&X-Cloudml-Expires=0&X-Cloudml-Signature=b"],
    words=[
        "&",
        "=",
        presigned.KEY,
        presigned.EXPIRES,
        presigned.SIGNATURE,
        "%26",
        "99999999999999",
    ],
)
def link(data: bytes) -> None:
    """A link that was changed in anything is refused; the one that was made opens."""
    query = text(data)
    right = query == LINK.partition("?")[2]
    try:
        one = presigned.Claim.from_query(query, longest_s=3600)
        claims.forget_at(one, 300)
        one.verify(SECRET, method="GET", target="/api/v1/storage/b/k", now=NOW, window_s=0)
    except Unauthenticated:
        assert not right
        return
    # The names may stand in another order; what they say is signed.
    assert sorted(query.split("&")) == sorted(LINK.partition("?")[2].split("&"))


@target(
    "auth.signature",
    seeds=["PUT\0/a/b?x=1&y\0/a/b?y&x=1", "GET\0/a//b?\0/a//b", "PUT\0/a?acl\0/a?acl=", "GET\0/%2F\0//", "GET\0/a?b=1&b=2\0/a?b=2&b=1"],
    words=["/", "?", "&", "=", "%2f", "%2F", "+", "%20", "#", "//", "/../", "uploadId", "acl"],
)  # fmt: skip
def signed_target(data: bytes) -> None:
    """What was signed is believed; another target is believed only if it means the same by the
    page on signatures.
    """
    method, one, other = map(text, pieces(data, 3))
    try:
        headers = signature.sign(method, one, key=KEY, secret=SECRET, now=NOW)
    except InvalidRequest:
        return
    read = claims.read(headers.items())
    read.verify(SECRET, method=method, target=one, now=NOW, window_s=0)
    path, _, query = one.partition("?")
    canonical = signature.canonical_query(query)
    assert signature.canonical_query(canonical) == canonical
    assert sorted(canonical.split("&")) == sorted(query.split("&"))
    same = path == other.partition("?")[0] and sorted(query.split("&")) == sorted(
        other.partition("?")[2].split("&")
    )
    try:
        read.verify(SECRET, method=method, target=other, now=NOW, window_s=0)
        assert same
    except Unauthenticated:
        assert not same or "#" in other
    for moved in (NOW - timedelta(seconds=2), NOW + timedelta(seconds=2)):
        with contextlib.suppress(Unauthenticated):
            read.verify(SECRET, method=method, target=one, now=moved, window_s=1)
            raise AssertionError("believed outside of the window")


@target(
    "api.fds.fds_request",
    "api.parameters",
    "auth.fds",
    seeds=[
        "/bucket/a%20b/c\0uploadId=1&partNumber=2",
        "/b/%2e%2e/x\0acl",
        "/%ff\0a=1&a=2",
        "//b//k\0&&=",
        "/b/%3f\0",
    ],
    words=["%2e", "%2F", "%00", "%ff", "..", "//", "uploadId=", "prefix=", "%e2%80%ae", "%c0%ae"],
)
def storage_path(data: bytes) -> None:
    """A path is read once, as it was signed; what cannot be is refused."""
    path, query = (one.decode("latin-1").encode("ascii", "replace") for one in pieces(data, 2))
    request = Request(
        {
            "type": "http",
            "method": "GET",
            "raw_path": path,
            "query_string": query,
            "headers": [],
            "path": "/",
        }
    )
    with contextlib.suppress(InvalidRequest):
        check = parameters.check_path(request)
        try:
            check.send(None)
        except StopIteration:
            pass
    try:
        fds_request = FdsRequest.of(request)
    except (InvalidRequest, Unauthenticated):
        return
    assert "/" not in fds_request.bucket
    assert fds.resource(path.decode() + "?acl").startswith(fds.decode_path(path.decode()))
    assert fds_request.level


@target(
    "api.ranges",
    "api.content",
    "sdk.storage.uris",
    "sdk.retries",
    "observability.requests",
    seeds=["bytes=0-4\0100", "bytes=-5\0003", "bytes=5-\0005", "bytes=1-2,3-4\00010", "bytes=\u0661-\0009", "sha-256=:AAAA:\0001",
           "Sat, 31 Jan 2026 12:00:00 GMT\0001", "120\0001", "Thu, 01 Jan 0001 00:00:00 "
                                                             "+2359\0001", "²\0001",
           "sha-256=5, x\0001", '"a", W/"b", *\0001'],
    words=["bytes=", "-", ",", "sha-256=:", ":", "GMT", "+2400", "W/", "*", "99999999999999999999"],
)  # fmt: skip
def header_values(data: bytes) -> None:
    """Small readers of one header each: no error but the documented one."""
    value, size_text = (one.decode("latin-1") for one in pieces(data, 2))
    size = len(size_text) * 7 % 50
    try:
        span = ranges.parse(value, size)
        assert span is None or 0 <= span.start <= span.end < size
    except ranges.Unsatisfiable:
        pass
    assert len(requests.choose_id(value)) <= 64
    content.wants_digest(value)
    conditional._names(value, "tag")
    digest = uris.repr_digest(value)
    assert digest is None or bytes.fromhex(digest) is not None
    assert uris.time_of(value).tzinfo is not None
    after = retries.parse_retry_after(value)
    assert after is None or after >= 0


@target(
    "serving.rest.exposition",
    seeds=["application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2", "*/*", "",
           "application/openmetrics-text;q=nan", "text/plain;q=1e999,application/openmetrics-text;q=.5"],
    words=["application/openmetrics-text", "text/plain", ";q=", ";version=1.0.0", "nan", "inf", "1_0", ","],
)  # fmt: skip
def scraper_accept(data: bytes) -> None:
    """OpenMetrics goes to scrapers that name it only, and either format has the same values."""
    chosen = exposition.wants_openmetrics(accept := data.decode("latin-1"))
    assert not chosen or "application/openmetrics-text" in accept.lower()
    seen = Histogram((1.0, 2.5))
    seen.add(len(data))
    series = [exposition.Series({"label": accept}, seen)]
    lines = list(exposition.Exposition(openmetrics=chosen).histogram("sizes", "Sizes.", series))
    assert len(lines) == 7
    assert not any("\n" in line for line in lines)


@target(
    "net.http1.cors",
    seeds=["https://app.example.com,http://[::1]:80\nhttps://app.example.com", "*\nnull", "\nhttps://a", " http://a "
                                                                                                         "\nhttp://a\r"],
    words=["https://", "http://", ",", "*", "[::1]", ":443", "\r\n", "null", "\n"],
)  # fmt: skip
def origins(data: bytes) -> None:
    """A page may read an answer where its very origin is named, and no field is more than a
    line.
    """
    listed, _, origin = data.decode("latin-1").partition("\n")
    try:
        named = cors.parse_origins(listed)
    except ValueError:
        return
    fields = {"origin": origin, "access-control-request-method": "POST"}
    head = Head("OPTIONS", "/", fields, old=False)
    lines = cors.Cors(named).fields(head)
    allowed = origin in named or cors.ANY in named
    assert (
        (b"Access-Control-Allow-Origin" in lines) == allowed == cors.Cors(named).is_preflight(head)
    )
    assert all(line.count(b"\r") == line.count(b"\n") == 0 for line in lines.split(b"\r\n"))
