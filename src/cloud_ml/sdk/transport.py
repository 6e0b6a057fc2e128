# Made of aio/transport.py by tools/twins.py: change that one, then run `make format`.
"""Requests to the server: signed, timed, retried, and answered by values or by errors of ours.

Each ring adds one concern: ``json`` reads the document, ``send`` turns refusals into errors,
``_open`` tries again, ``_try_once`` signs and talks to a connection.
"""

from __future__ import annotations

import copy
import json
import random
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from cloud_ml.errors import (
    CloudMlError,
    InvalidRequest,
    NotFound,
    PreconditionFailed,
    SeenBefore,
    TransportError,
)
from cloud_ml.models import codec
from cloud_ml.net.client.errors import NotHttp
from cloud_ml.sdk.answers import Answer
from cloud_ml.sdk.clock import sleep as pause
from cloud_ml.sdk.config import Credentials, TokenCredentials
from cloud_ml.sdk.connections import ConnectionPool, exchange
from cloud_ml.sdk.endpoint import Endpoint
from cloud_ml.sdk.failures import (
    AlreadyCarriedOut,
    AlreadyDeleted,
    error_of_answer,
    error_of_exception,
    name_refused_read,
    not_ours,
    refused_for_org,
    say_outcome_unknown,
)
from cloud_ml.sdk.messages import Request
from cloud_ml.sdk.retries import (
    BUSY_STATUSES,
    LOST_STATUSES,
    AttemptFailure,
    RetryPolicy,
    delay_before_retry,
    parse_retry_after,
)
from cloud_ml.sdk.signing import key_of, sign_request

CONNECT_TIMEOUT_S = 10.0
T = TypeVar("T")


class Transport:
    """Talks to one server in the name of one key or token. Safe to use from several threads.

    Args:
        endpoint: Whom to talk to.
        credentials: The key that signs, or the token that is sent.
        retry: How stubborn to be.
        connect_timeout_s: Longest wait for a connection.
        sleep: Waits between tries; tests hand in their own.
        pool: Where connections come from, if not from a pool of its own.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        credentials: Credentials | TokenCredentials,
        *,
        retry: RetryPolicy | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        sleep: Callable[[float], None] = pause,
        pool: ConnectionPool | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.credentials = credentials
        self.retry = retry or RetryPolicy()
        self.sleep = sleep
        self._org_id: str | None = None
        self._connect_timeout_s = connect_timeout_s
        self._pool = pool or ConnectionPool(endpoint, connect_timeout_s=connect_timeout_s)

    def for_org(self, org_id: str) -> Transport:
        """The same connections, for requests about another organisation, of an administrator."""
        other = copy.copy(self)
        other._org_id = org_id
        return other

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
        except (ValueError, RecursionError):
            raise not_ours(self.endpoint, answer.status, answer.headers, body) from None

    def ask(self, kind: type[T], request: Request) -> T:
        """Send and read an answer of this kind; fields of a newer server are dropped. Raises
        what ``json`` raises.
        """
        return codec.decode(kind, self.json(request), ignore_unknown=True)

    def send(self, request: Request) -> Answer:
        """Send and return the answer with its body still to be read.

        Raises:
            CloudMlError: The server's refusal, as the exception that it names.
            TransportError: No server, or not one of ours.
        """
        if self._org_id is not None:
            request = replace(request, query={**request.query, "org_id": self._org_id})
        answer, arrived, repeated = self._open(request)
        if answer.status < 300:
            return answer
        with answer:
            body = answer.read()
        error = self._refusal(answer.status, answer.headers, body)
        if (
            self._org_id is not None
            and isinstance(error, InvalidRequest)
            and error.field == "org_id"
        ):
            raise refused_for_org() from error
        if request.method == "HEAD":
            name_refused_read(error, request.path)
        if request.changes and answer.status in LOST_STATUSES:
            say_outcome_unknown(error)
        # The server knows a nonce only from a request that it accepted: an earlier try was carried
        # out.
        if isinstance(error, SeenBefore) and (arrived or (repeated and request.single_nonce)):
            raise (
                AlreadyDeleted(AlreadyCarriedOut())
                if request.method == "DELETE"
                else AlreadyCarriedOut()
            ) from error
        if (
            request.method == "DELETE"
            and arrived
            and isinstance(error, (NotFound, PreconditionFailed))
        ):
            raise AlreadyDeleted(error) from error
        raise error

    def link(self, method: str, path: str, *, expires: int) -> str:
        """A URL that opens the object at ``path`` for whoever has it, until ``expires`` (seconds
        since 1970).

        Raises:
            InvalidRequest: The method is neither ``GET`` nor ``PUT``, or there is a token and no
                key.
        """
        from cloud_ml.auth import presigned  # noqa: PLC0415 - few need it

        key = key_of(self.credentials, "a link", "Ask somebody with an access key for the link.")
        target = presigned.sign(
            method,
            self.endpoint.prefix + path,
            key=key.access_key,
            secret=key.secret_key,
            expires=expires,
        )
        return str(self.endpoint).removesuffix(self.endpoint.prefix) + target

    def _sign_request(self, request: Request, nonce: str | None) -> tuple[dict[str, str], str]:
        """Headers and target of one try."""
        return sign_request(self.endpoint, self.credentials, request, nonce)

    def _refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> CloudMlError:
        return error_of_answer(self.endpoint, status, headers, body)

    def _open(self, request: Request) -> tuple[Answer, bool, bool]:
        """The last answer, whether an earlier try may have been carried out, and whether there was
        one.

        A server whose database went away answers 503, and may have stored what it was asked for:
        its next answer tells, if both tries have one nonce.
        """
        attempt, arrived = 1, False
        nonce = secrets.token_urlsafe(18) if request.single_nonce else None
        while True:
            outcome = self._try_once(request, nonce)
            if isinstance(outcome, Answer) and outcome.status not in BUSY_STATUSES:
                return outcome, arrived, attempt > 1
            failure, retry_after = _judge(outcome)
            delay = delay_before_retry(
                self.retry,
                failure,
                repeatable=request.repeatable,
                attempt=attempt,
                luck=random.random(),  # noqa: S311 - spreads retries, guards nothing
                retry_after_s=retry_after,
            )
            if delay is None:
                if isinstance(outcome, Answer):
                    return outcome, arrived, attempt > 1
                if request.changes and (arrived or failure is AttemptFailure.LOST):
                    say_outcome_unknown(outcome.error)
                raise outcome.error
            if isinstance(outcome, Answer):
                arrived = arrived or outcome.status in LOST_STATUSES
                outcome.close()
            else:
                arrived = arrived or failure is AttemptFailure.LOST
            self.sleep(delay)
            attempt += 1

    def _try_once(self, request: Request, nonce: str | None) -> Answer | _Broken:
        # Signed for each try: the server accepts a time of signing only for some minutes.
        headers, target = self._sign_request(request, nonce)
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
            response = exchange(connection, request, target, headers)
        except (OSError, NotHttp) as error:
            connection.close()
            return self._broken(error, connected=True, timeout_s=request.read_timeout_s)
        # A request that is called off leaves its answer on the connection, where the next request
        # would read it as its own.
        except BaseException:
            connection.close()
            raise

        def explain(error: Exception) -> CloudMlError:
            client_error = self._broken(
                error, connected=True, timeout_s=request.read_timeout_s
            ).error
            if request.changes:
                say_outcome_unknown(client_error)
            return client_error

        return Answer(response, explain=explain, done=done)

    def _broken(self, error: Exception, *, connected: bool, timeout_s: float) -> _Broken:
        client_error, failure = error_of_exception(
            self.endpoint, error, connected=connected, timeout_s=timeout_s
        )
        client_error.__cause__ = error
        return _Broken(client_error, failure)


@dataclass(frozen=True, slots=True)
class _Broken:
    error: TransportError
    failure: AttemptFailure


def _judge(outcome: Answer | _Broken) -> tuple[AttemptFailure, float | None]:
    if isinstance(outcome, Answer):
        return AttemptFailure.BUSY, parse_retry_after(outcome.headers.get("retry-after"))
    return outcome.failure, None
