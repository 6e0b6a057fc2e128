from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator

import pytest

from cloud_ml import errors
from cloud_ml.api.errors import _WORDS, STATUS
from cloud_ml.net.client.errors import BadStatusLine, CutShort
from cloud_ml.sdk.endpoint import parse_endpoint
from cloud_ml.sdk.failures import error_of_answer, error_of_document, error_of_exception
from cloud_ml.sdk.retries import AttemptFailure

PLAIN = parse_endpoint("http://ml.example.com:8471")
SECURE = parse_endpoint("https://ml.example.com")

LOCAL = {errors.TransportError, errors.WaitTimedOut}
"""Errors that only a client raises."""


def _tree(kind: type[errors.CloudMlError]) -> Iterator[type[errors.CloudMlError]]:
    yield kind
    for below in kind.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from _tree(below)


_KINDS = [kind for kind in _tree(errors.CloudMlError) if kind not in LOCAL | {errors.CloudMlError}]


def test_every_error_of_the_servers_table_has_its_class_here() -> None:
    assert set(STATUS) - LOCAL - {errors.CloudMlError} <= set(_KINDS)
    assert len({kind.code for kind in _KINDS}) == len(_KINDS)


@pytest.mark.parametrize(
    "code", sorted({*_WORDS.values(), "internal", "method_not_allowed", "bad_request"})
)
def test_every_code_of_the_framework_is_an_error_of_ours(code: str) -> None:
    got = error_of_document({"error": True, "code": code, "message": "what happened"})
    assert (got.code, got.message) == (code, "what happened")


@pytest.mark.parametrize("kind", _KINDS)
def test_every_error_comes_back_as_it_was_raised(kind: type[errors.CloudMlError]) -> None:
    sent = kind("what happened", field="f", value=3, allowed="less", hint="do this")
    got = error_of_document(sent.document())
    assert type(got) is kind
    assert got.document() == sent.document()


def test_same_spec_comes_back() -> None:
    got = error_of_document(errors.AlreadyExists("taken", same_spec=True).document())
    assert isinstance(got, errors.AlreadyExists)
    assert got.same_spec is True


def test_a_code_from_the_future_is_kept() -> None:
    got = error_of_document(
        {"error": True, "code": "out_of_luck", "message": "too many", "allowed": "3"}
    )
    assert isinstance(got, errors.CloudMlError)
    assert (got.code, got.message, got.allowed) == ("out_of_luck", "too many", "3")
    assert errors.CloudMlError.code == "internal"


@pytest.mark.parametrize(
    ("status", "headers", "body", "kind", "words"),
    [
        (404, {"x-request-id": "1"}, b"", errors.NotFound, "there is no such object"),
        (401, {"x-request-id": "1"}, b"", errors.Unauthenticated, "not accept the key or token"),
        (403, {"x-request-id": "1"}, b"", errors.Forbidden, "does not allow this"),
        (409, {"x-request-id": "1"}, b"", errors.Conflict, "409"),
        (404, {}, b"", errors.TransportError, "answered 404 with no content type"),
        (502, {"content-type": "text/html"}, b"<html>", errors.Unavailable, "502"),
        (
            404,
            {"content-type": "text/html"},
            b"<h1>nginx</h1>",
            errors.TransportError,
            "instead of JSON: <h1>nginx",
        ),
        (
            500,
            {"content-type": "text/plain"},
            b"Internal Server Error",
            errors.TransportError,
            "answered 500",
        ),
        (
            302,
            {"location": "https://login"},
            b"",
            errors.TransportError,
            "redirects to https://login",
        ),
        (
            401,
            {"www-authenticate": 'Bearer realm="cloudml"'},
            b'{"error": "missing bearer token"}',
            errors.TransportError,
            "http://ml.example.com:8471 is a model service and not the server",
        ),
        (
            401,
            {"www-authenticate": 'Bearer realm="cloudml", error="invalid_token"'},
            b"",
            errors.TransportError,
            "is a model service and not the server",
        ),
        (404, {"cloudml-release": "1"}, b"", errors.TransportError, "is a model service and"),
        (
            503,
            {},
            b'{"error": "the service is stopped"}',
            errors.TransportError,
            "seems to be a model service and not the server; it says: the service is stopped",
        ),
        (404, {}, b'{"error": {"code": 5}}', errors.TransportError, "answered 404"),
        (400, {}, b'{"detail": "x"}', errors.TransportError, "answered 400"),
        (400, {}, b"[1]", errors.TransportError, "answered 400"),
    ],
)
def test_answers_that_are_not_ours(
    status: int, headers: dict[str, str], body: bytes, kind: type[errors.CloudMlError], words: str
) -> None:
    got = error_of_answer(PLAIN, status, headers, body)
    assert type(got) is kind
    assert words in got.message


def _ssl_error(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, reason)
    error.reason = reason
    return error


_EXCEPTIONS = [
    (
        PLAIN,
        ConnectionRefusedError(111, "x"),
        False,
        "nothing listens at",
        "cloudml server",
        AttemptFailure.UNSENT,
    ),
    (
        PLAIN,
        socket.gaierror(-2, "not known"),
        False,
        "host ml.example.com is not",
        "config show",
        AttemptFailure.FINAL,
    ),
    (
        PLAIN,
        TimeoutError("timed out"),
        False,
        "could not be reached within 7 s",
        "config show",
        AttemptFailure.UNSENT,
    ),
    (
        PLAIN,
        TimeoutError("timed out"),
        True,
        "did not answer within 7 s",
        "may have been carried out",
        AttemptFailure.LOST,
    ),
    (
        PLAIN,
        ConnectionResetError("no answer"),
        True,
        "closed the connection",
        "https://",
        AttemptFailure.LOST,
    ),
    (
        PLAIN,
        ConnectionResetError(104, "reset"),
        True,
        "closed the connection",
        "https://",
        AttemptFailure.LOST,
    ),
    (
        SECURE,
        ConnectionResetError(104, "reset"),
        True,
        "closed the connection",
        "restarting",
        AttemptFailure.LOST,
    ),
    (
        PLAIN,
        BadStatusLine("\x15\x03\x01"),
        True,
        "did not answer in HTTP",
        "https://",
        AttemptFailure.FINAL,
    ),
    (PLAIN, CutShort(), True, "broke off", "again", AttemptFailure.LOST),
    (
        PLAIN,
        OSError(113, "No route to host"),
        False,
        "No route to host",
        "config show",
        AttemptFailure.UNSENT,
    ),
    (
        SECURE,
        _ssl_error("WRONG_VERSION_NUMBER"),
        False,
        "cannot agree on TLS",
        "http://",
        AttemptFailure.FINAL,
    ),
    (
        SECURE,
        _ssl_error("NO_SHARED_CIPHER"),
        False,
        "NO_SHARED_CIPHER",
        "config show",
        AttemptFailure.FINAL,
    ),
    (
        SECURE,
        ssl.SSLCertVerificationError(1, "bad"),
        False,
        "is not trusted",
        "SSL_CERT_FILE",
        AttemptFailure.FINAL,
    ),
]


@pytest.mark.parametrize(
    ("endpoint", "error", "connected", "words", "hint", "trouble"), _EXCEPTIONS
)
def test_what_the_network_says_is_put_in_words(
    endpoint, error, connected, words, hint, trouble
) -> None:  # type: ignore[no-untyped-def]
    if isinstance(error, ssl.SSLCertVerificationError):
        error.verify_message = "self-signed certificate"
    sdk_error, found = error_of_exception(endpoint, error, connected=connected, timeout_s=7.0)
    assert words in sdk_error.message
    assert hint in (sdk_error.hint or "")
    assert found is trouble
    assert sdk_error.code == "transport"
