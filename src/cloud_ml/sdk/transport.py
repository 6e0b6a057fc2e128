"""Requests to the server: signed, timed, retried, and answered by values or by errors of ours.

Each ring adds one concern: ``json`` reads the document, ``send`` turns refusals into errors,
``_open`` tries again, ``_try_once`` signs and talks to a connection.
"""

from __future__ import annotations

import http.client
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from cloud_ml import __version__
from cloud_ml.auth.signature import EMPTY_SHA256, content_sha256, sign
from cloud_ml.errors import CloudMlError, TransportError
from cloud_ml.sdk.config import Credentials
from cloud_ml.sdk.connections import ConnectionPool
from cloud_ml.sdk.endpoint import Endpoint
from cloud_ml.sdk.failures import error_of_answer, error_of_exception, not_ours
from cloud_ml.sdk.messages import Answer, FileBody, Request
from cloud_ml.sdk.retries import BUSY_STATUSES, RetryPolicy, Trouble, delay_before_retry, parse_retry_after

CONNECT_TIMEOUT_S = 10.0


class Transport:
    """Talks to one server in the name of one key. Safe to use from several threads.

    Args:
        endpoint: Whom to talk to.
        credentials: Whose signature to use.
        retry: How stubborn to be.
        connect_timeout_s: Longest wait for a connection.
        sleep: Waits between tries; tests hand in their own.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        credentials: Credentials,
        *,
        retry: RetryPolicy | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.endpoint = endpoint
        self.retry = retry or RetryPolicy()
        self.sleep = sleep
        self._credentials = credentials
        self._connect_timeout_s = connect_timeout_s
        self._pool = ConnectionPool(endpoint, connect_timeout_s=connect_timeout_s)

    def close(self) -> None:
        """Close idle connections; the transport stays usable."""
        self._pool.close()

    def json(self, request: Request) -> Any:
        """Send and read a JSON document.

        Raises:
            CloudMlError: The server's refusal, as the exception that it names.
            TransportError: No server, or not one of ours.
        """
        with self.send(request) as answer:
            body = answer.read()
        try:
            return json.loads(body)
        except ValueError:
            raise not_ours(self.endpoint, answer.status, answer.headers, body) from None

    def send(self, request: Request) -> Answer:
        """Send and return the answer with its body still to be read.

        Raises:
            CloudMlError: The server's refusal, as the exception that it names.
            TransportError: No server, or not one of ours.
        """
        answer = self._open(request)
        if answer.status < 300:
            return answer
        with answer:
            body = answer.read()
        raise error_of_answer(self.endpoint, answer.status, answer.headers, body)

    def link(self, method: str, path: str, *, expires: int) -> str:
        """A URL that opens the object at ``path`` for whoever has it, until ``expires`` (seconds since 1970).

        Raises:
            InvalidRequest: The method is neither ``GET`` nor ``PUT``.
        """
        from cloud_ml.auth import presigned  # noqa: PLC0415 - few need it

        key = self._credentials
        target = presigned.sign(
            method, self.endpoint.prefix + path, key=key.access_key, secret=key.secret_key, expires=expires
        )
        return str(self.endpoint).removesuffix(self.endpoint.prefix) + target

    def _open(self, request: Request) -> Answer:
        attempt = 1
        while True:
            outcome = self._try_once(request)
            if isinstance(outcome, Answer) and outcome.status not in BUSY_STATUSES:
                return outcome
            trouble, retry_after = _judge(outcome)
            delay = delay_before_retry(
                self.retry,
                trouble,
                repeatable=request.repeatable,
                attempt=attempt,
                luck=random.random(),  # noqa: S311 - spreads retries, guards nothing
                retry_after_s=retry_after,
            )
            if delay is None:
                if isinstance(outcome, Answer):
                    return outcome
                raise outcome.error
            if isinstance(outcome, Answer):
                outcome.close()
            self.sleep(delay)
            attempt += 1

    def _try_once(self, request: Request) -> Answer | _Broken:
        headers, target = self._signed(request)
        try:
            connection = self._pool.acquire(read_timeout_s=request.read_timeout_s)
        except OSError as error:
            return self._broken(error, connected=False, timeout_s=self._connect_timeout_s)

        def done(reusable: bool) -> None:
            if reusable:
                self._pool.release(connection)
            else:
                connection.close()

        try:
            response = _exchange(connection, request, target, headers)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            return self._broken(error, connected=True, timeout_s=request.read_timeout_s)
        except BaseException:
            connection.close()
            raise

        def explain(error: Exception) -> CloudMlError:
            return self._broken(error, connected=True, timeout_s=request.read_timeout_s).error

        return Answer(response, explain=explain, done=done)

    def _broken(self, error: Exception, *, connected: bool, timeout_s: float) -> _Broken:
        told, trouble = error_of_exception(self.endpoint, error, connected=connected, timeout_s=timeout_s)
        told.__cause__ = error
        return _Broken(told, trouble)

    def _signed(self, request: Request) -> tuple[dict[str, str], str]:
        path = self.endpoint.prefix + request.path
        query = urlencode([pair for name, value in request.query.items() for pair in _query_pairs(name, value)])
        target = f"{path}?{query}" if query else path
        headers = {"Accept": "application/json", "User-Agent": f"cloudml/{__version__}", **request.headers}
        if request.idempotency_key is not None:
            headers["Idempotency-Key"] = request.idempotency_key
        if isinstance(request.body, FileBody):
            content = request.body.sha256
            headers["Content-Length"] = str(request.body.size)
        else:
            content = content_sha256(request.body) if request.body else EMPTY_SHA256
        signature = sign(
            request.method,
            target,
            key=self._credentials.access_key,
            secret=self._credentials.secret_key,
            now=datetime.now(UTC),
            content=content,
        )
        return {**headers, **signature}, target


@dataclass(frozen=True, slots=True)
class _Broken:
    error: TransportError
    trouble: Trouble


def _judge(outcome: Answer | _Broken) -> tuple[Trouble, float | None]:
    if isinstance(outcome, Answer):
        return Trouble.BUSY, parse_retry_after(outcome.headers.get("retry-after"))
    return outcome.trouble, None


def _exchange(
    connection: http.client.HTTPConnection, request: Request, target: str, headers: dict[str, str]
) -> http.client.HTTPResponse:
    body = request.body.blocks() if isinstance(request.body, FileBody) else request.body or None
    try:
        connection.request(request.method, target, body=body, headers=headers)
    except (BrokenPipeError, ConnectionResetError) as error:
        # A server that refuses an upload may answer and close before it has read it all: the answer
        # says more than the broken pipe.
        try:
            response = connection.getresponse()
        except (OSError, http.client.HTTPException):
            raise error from None
        response.will_close = True
        return response
    return connection.getresponse()


def _query_pairs(name: str, value: Any) -> list[tuple[str, str]]:
    values = value if isinstance(value, (list, tuple)) else [value]
    return [(name, "true" if one is True else str(one)) for one in values if one is not None and one is not False]
