"""From what went wrong on the wire to an error that a person can act on."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from cloud_ml import errors
from cloud_ml.net.client.errors import BadStatusLine
from cloud_ml.sdk.endpoint import Endpoint
from cloud_ml.sdk.retries import AttemptFailure


class AlreadyDeleted(errors.NotFound):
    """What was to be deleted is not there, and an earlier try, whose answer was lost, may have
    been the reason.
    """

    def __init__(self, error: errors.CloudMlError) -> None:
        hint = "an earlier try, whose answer was lost, may have deleted it"
        super().__init__(
            error.message, field=error.field, value=error.value, allowed=error.allowed, hint=hint
        )


class AlreadyCarriedOut(errors.RequestError):
    """An earlier try of this request was carried out. Its answer was lost, and somebody may have
    acted since.
    """

    code = "carried_out"

    def __init__(self) -> None:
        super().__init__(
            "the request was carried out, but the answer was lost on the way",
            hint="Look at the present state.",
        )


_BY_CODE: dict[str, type[errors.CloudMlError]] = {
    kind.code: kind
    for kind in (
        errors.RequestError,
        errors.InvalidRequest,
        errors.Unauthenticated,
        errors.SeenBefore,
        errors.Forbidden,
        errors.QuotaExceeded,
        errors.NotFound,
        errors.AlreadyExists,
        errors.Conflict,
        errors.PreconditionFailed,
        errors.StartAgain,
        errors.TooLarge,
        errors.TryAgain,
        errors.StaleRevision,
        errors.FenceLost,
        errors.TooMany,
        errors.Unavailable,
        errors.OutOfSpace,
        errors.Damaged,
    )
}
_BY_STATUS: dict[int, type[errors.CloudMlError]] = {
    400: errors.InvalidRequest,
    401: errors.Unauthenticated,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    412: errors.AlreadyExists,
    413: errors.TooLarge,
    429: errors.TooMany,
    502: errors.Unavailable,
    503: errors.Unavailable,
    504: errors.Unavailable,
    507: errors.OutOfSpace,
}
_WITHOUT_DOCUMENT: dict[int, tuple[str, str | None]] = {
    401: (
        "the server does not accept the key or token",
        "Check the access key and its secret, or the token: cloudml config show.",
    ),
    403: (
        "the key or token does not allow this",
        "The token may lack a scope, or the role of the user the right. See both: cloudml whoami",
    ),
    404: ("there is no such object", None),
    429: ("there are too many requests at once", "Try again in a few seconds."),
    503: ("the server cannot answer now", "Try again in a few seconds."),
    507: ("the disk or the quota of storage is full", "See: cloudml quota list."),
}
"""What a status means where the answer has no body, and what helps."""
_MISSING_SCOPE = re.compile(r'error="insufficient_scope", scope="([a-z]+:[A-Za-z0-9:/._-]+)"')
_OBJECTS = "/api/v1/storage/"
_START_HINT = "Is the server running? Start one with `cloudml server`, or name another with --endpoint or CLOUDML_ENDPOINT."  # noqa: E501
_PLAIN_HTTP_REASONS = (
    "WRONG_VERSION_NUMBER",
    "RECORD_LAYER_FAILURE",
    "HTTP_REQUEST",
    "UNEXPECTED_EOF_WHILE_READING",
)
"""What OpenSSL makes of a plain answer to its greeting; the words differ by release."""
_ENDPOINT_HINT = "Look at the endpoint: `cloudml config show`."


class ServerError(errors.CloudMlError):
    """An error of a newer server, whose code this client does not know. ``code`` is what it
    said.
    """

    def __init__(self, code: str, message: str, **facts: Any) -> None:
        super().__init__(message, **facts)
        self.code = code  # type: ignore[misc]


class NobodyThere(errors.TransportError):
    """Nothing answers at the endpoint: the server may be down, or the endpoint wrong."""


def error_of_document(document: Mapping[str, Any]) -> errors.CloudMlError:
    """The exception that the server raised, as far as its document tells."""
    code = str(document.get("code") or "internal")
    message = str(document.get("message") or "the server gave no reason")
    facts = {
        name: document[name] for name in ("field", "value", "allowed", "hint") if name in document
    }
    if code == errors.AlreadyExists.code:
        return errors.AlreadyExists(message, same_spec=document.get("same_spec"), **facts)
    if code in _BY_CODE:
        return _BY_CODE[code](message, **facts)
    return ServerError(code, message, **facts)


def error_of_answer(
    endpoint: Endpoint, status: int, headers: Mapping[str, str], body: bytes
) -> errors.CloudMlError:
    """The exception for an answer with a status of 300 or more."""
    document = _as_object(body)
    if document is not None and document.get("error") and "message" in document:
        return error_of_document(document)
    if (other := _of_model_service(endpoint, headers, document)) is not None:
        return other
    if 300 <= status < 400:
        return errors.TransportError(
            f"{endpoint} redirects to {headers.get('location', 'somewhere else')}, and "
            "redirects are not followed",
            hint="Use the address it points to as the endpoint.",
        )
    if (
        not body and status in _BY_STATUS and "x-request-id" in headers
    ):  # HEAD has no room for a document
        if status == 403 and (scope := _missing_scope(headers)):
            return _lacks_scope(scope)
        message, hint = _WITHOUT_DOCUMENT.get(status, (f"the server answered {status}", None))
        return _BY_STATUS[status](message, hint=hint)
    if status in (502, 503, 504):
        return errors.Unavailable(
            f"a proxy in front of the server answered {status}",
            hint="The server may be starting; try again.",
        )
    return not_ours(endpoint, status, headers, body)


def _of_model_service(
    endpoint: Endpoint, headers: Mapping[str, str], document: Mapping[str, Any] | None
) -> errors.TransportError | None:
    """The error for an answer of a model service, whose address was given for that of the server;
    ``None`` if the answer does not look like one.
    """
    if "x-request-id" in headers:  # every answer of the server has one
        return None
    certain = "cloudml-release" in headers or headers.get("www-authenticate", "").startswith(
        'Bearer realm="cloudml"'
    )
    detail = document.get("error") if document is not None and len(document) == 1 else None
    if certain:
        message = f"{endpoint} is a model service and not the server"
    elif isinstance(detail, str):
        words = " ".join(detail[:200].split())
        message = f"{endpoint} seems to be a model service and not the server; it says: {words}"
    else:
        return None
    return errors.TransportError(
        message,
        hint="Use the address of the server as the endpoint, usually with port 8471. To call a "
        f"model: cloudml models predict NAME -s {endpoint} -d data.json",
    )


def _lacks_scope(scope: str) -> errors.Forbidden:
    from cloud_ml.auth import bearer  # noqa: PLC0415 - few need it

    return errors.Forbidden(
        f"the token lacks the scope {scope}",
        field="scope",
        hint=f"See its scopes: cloudml whoami. {bearer.how_to_replace(scope)}",
    )


def _missing_scope(headers: Mapping[str, str]) -> str:
    """The scope that a token lacks, as RFC 6750 has it told in section 3; empty if none is told."""
    found = _MISSING_SCOPE.search(headers.get("www-authenticate", ""))
    return found[1] if found else ""


def name_refused_read(error: errors.CloudMlError, path: str) -> None:
    """Say what could not be read where a refusal of rights had no room for it, as that of HEAD."""
    if isinstance(error, errors.Forbidden):
        where = unquote(path)
        if where.startswith(_OBJECTS):
            where = "fds://" + where.removeprefix(_OBJECTS)
        error.message = f"reading {where} is refused: {error.message}"


def refused_for_org() -> errors.InvalidRequest:
    """The error for what a client of ``for_org`` may not do: the server takes no ``org_id``
    there.
    """
    return errors.InvalidRequest(
        "a client made with for_org() reads, cancels, stops and deletes what the organisation has, "
        "and nothing else; for this, use a client with a key of that organisation",
        field="org_id",
    )


def no_such_org(error: errors.NotFound) -> errors.NotFound:
    """The error of ``for_org``; an organisation that is absent looks as one of others does."""
    return errors.NotFound(
        f"{error.message}; for_org() takes the name or number of one, and only an administrator "
        "may name another than their own",
        field=error.field,
        value=error.value,
    )


def not_ours(
    endpoint: Endpoint, status: int, headers: Mapping[str, str], body: bytes
) -> errors.TransportError:
    """The error for an answer that no Cloud ML server gives."""
    kind = headers.get("content-type", "no content type")
    start = " ".join(body[:200].decode("utf-8", "replace").split())[:80]
    return errors.TransportError(
        f"{endpoint} answered {status} with {kind} instead of JSON"
        + (f": {start}" if start else ""),
        hint=f"This does not look like a Cloud ML server. {_ENDPOINT_HINT}",
    )


_TRY_AGAIN = "Try again."
OUTCOME_UNKNOWN = (
    "The request may have been carried out; look at the present state before you send it again."
)


def say_outcome_unknown(error: errors.CloudMlError) -> None:
    """Put it first in the hint of an error that came instead of the answer to a change."""
    known = error.hint if error.hint not in (None, _TRY_AGAIN, OUTCOME_UNKNOWN) else ""
    error.hint = f"{OUTCOME_UNKNOWN} {known}".rstrip()


def error_of_exception(
    endpoint: Endpoint, error: Exception, *, connected: bool, timeout_s: float
) -> tuple[errors.TransportError, AttemptFailure]:
    """The error for something that the network layer raised, and what it means for another try.

    Args:
        endpoint: Whom we talked to.
        error: An ``OSError`` or a ``NotHttp``.
        connected: Whether a connection stood, so that the request may have arrived.
        timeout_s: How long was waited, for the message.
    """
    trouble = AttemptFailure.LOST if connected else AttemptFailure.UNSENT
    if (tls := _tls_error(endpoint, error)) is not None:
        return tls, AttemptFailure.FINAL
    if isinstance(error, ConnectionRefusedError):
        return NobodyThere(f"nothing listens at {endpoint}", hint=_START_HINT), trouble
    if isinstance(error, socket.gaierror):
        message = f"the host {endpoint.host} is not known ({error.strerror or error})"
        return errors.TransportError(message, hint=_ENDPOINT_HINT), AttemptFailure.FINAL
    if isinstance(error, TimeoutError):
        what = "did not answer" if connected else "could not be reached"
        hint = (
            "It may be busy; the request may have been carried out."
            if connected
            else _ENDPOINT_HINT
        )
        kind = errors.TransportError if connected else NobodyThere
        return kind(f"{endpoint} {what} within {timeout_s:g} s", hint=hint), trouble
    if _looks_like_tls(error):
        message = f"{endpoint} did not answer in HTTP"
        return errors.TransportError(
            message, hint="It may speak TLS: try https:// in the endpoint."
        ), AttemptFailure.FINAL
    if isinstance(error, ConnectionError):
        message = f"{endpoint} closed the connection without an answer"
        hint = (
            "It may be restarting."
            if endpoint.secure
            else "It may be restarting, or it speaks TLS (https://)."
        )
        return errors.TransportError(message, hint=hint), trouble
    if isinstance(error, OSError):
        message = f"{endpoint} cannot be reached: {error.strerror or error}"
        return errors.TransportError(message, hint=_ENDPOINT_HINT), trouble
    return errors.TransportError(
        f"{endpoint} broke off in the middle of an answer", hint=_TRY_AGAIN
    ), trouble


def _tls_error(endpoint: Endpoint, error: Exception) -> errors.TransportError | None:
    if not endpoint.secure:
        return None
    import ssl  # noqa: PLC0415 - only https pays for it

    if isinstance(error, ssl.SSLCertVerificationError):
        return errors.TransportError(
            f"the certificate of {endpoint} is not trusted: {error.verify_message}",
            hint="Name your authority's certificate in SSL_CERT_FILE, or correct the host in "
            "the endpoint.",
        )
    if isinstance(error, ssl.SSLError):
        plain = error.reason in _PLAIN_HTTP_REASONS
        return errors.TransportError(
            f"{endpoint} and this client cannot agree on TLS ({error.reason or error})",
            hint="The server may speak plain HTTP: try http:// in the endpoint."
            if plain
            else _ENDPOINT_HINT,
        )
    return None


def _looks_like_tls(error: Exception) -> bool:
    # A TLS server tells a plain client off with an alert record (0x15, version 3.x), which is no
    # status line.
    return isinstance(error, BadStatusLine) and "\x15\x03" in error.line


def _as_object(body: bytes) -> Mapping[str, Any] | None:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
