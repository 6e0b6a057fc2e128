# Made of aio/models/handles.py by tools/twins.py: change that one, then run `make format`.
"""A model service one can hold on to: wait for it, ask its model, look at its replicas, change
it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Generator, Mapping
from contextlib import closing
from typing import Any

from cloud_ml.errors import (
    CloudMlError,
    Forbidden,
    InvalidRequest,
    NotFound,
    TransportError,
    TryAgain,
    Unauthenticated,
    WaitTimedOut,
)
from cloud_ml.models.jobs.job import FINISHED, JobEvent
from cloud_ml.models.services.service import (
    Service,
    ServiceLineage,
    ServiceMetrics,
    ServiceSignatures,
    ServiceUpdate,
)
from cloud_ml.sdk.answers import Answer
from cloud_ml.sdk.clock import sleep as pause
from cloud_ml.sdk.failures import NobodyThere
from cloud_ml.sdk.jobs.follow import Written, follow_log
from cloud_ml.sdk.models.inference import check_address
from cloud_ml.sdk.models.predicting import Inputs, Predictions
from cloud_ml.sdk.models.services import ServiceCalls
from cloud_ml.sdk.timeouts import LONG_POLL_S, PATIENCE
from cloud_ml.sdk.watching import follow_events


class ServiceHandle:
    """A service on the server, and what was last heard of it (``service``).

    Every method that asks the server raises ``NotFound`` once the service is deleted, and
    ``CloudMlError`` as the client's methods do.
    """

    def __init__(self, calls: ServiceCalls, service: Service) -> None:
        self._calls = calls
        self._failures = 0  # in a row, while it is waited for
        self._predictions: Predictions | None = None
        self.service = service

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.version!r}, phase={self.phase!r})"

    @property
    def name(self) -> str:
        """The name of the model."""
        return self.service.name

    @property
    def version(self) -> str:
        """The version of the service."""
        return self.service.version

    @property
    def phase(self) -> str:
        """Where the service stood when it was last heard of."""
        return self.service.phase

    @property
    def address(self) -> str:
        """``host:port`` for gRPC and HTTP; empty while there is none."""
        return self.service.address

    def refresh(self) -> Service:
        """Ask how the service stands."""
        self.service = self._calls.get(self.name, self.version)
        return self.service

    def await_change(self, timeout: float | None = None) -> Service:
        """The service as soon as it has changed, at the latest after ``timeout`` seconds (or
        half a minute).
        """
        wait_s = LONG_POLL_S if timeout is None else min(timeout, LONG_POLL_S)
        self.service = self._calls.get(
            self.name, self.version, newer_than=self.service.revision, wait_s=wait_s
        )  # fmt: skip
        return self.service

    def wait(self, timeout: float | None = None) -> Service:
        """Wait until nothing is on its way: the service answers as wanted, cannot, or is not to.

        The caller looks at ``phase``, which is ``Running`` where all is well, and at ``failed``:
        after an update that failed the service is ``Running`` with the release before it, and
        ``failed`` says why. A server that restarts meanwhile is waited for, about two minutes.

        Args:
            timeout: Seconds; ``None`` waits for ever.

        Raises:
            WaitTimedOut: It is still on its way.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.service.settled:
            left = LONG_POLL_S if deadline is None else deadline - time.monotonic()
            if left <= 0:
                why = f": {self.service.message}" if self.service.message else ""
                raise WaitTimedOut(
                    f"{self.name} {self.version} is still {self.phase} after {timeout:g} s{why}"
                )
            self.wait_for_news(min(left, LONG_POLL_S))
        return self.service

    def wait_until_gone(self) -> None:
        """Wait until a deleted service and its replicas are gone and its name and version are
        free.
        """
        try:
            while True:
                self.wait_for_news(LONG_POLL_S)
        except NotFound:
            return

    def predict(
        self,
        inputs: Inputs,
        *,
        types: Mapping[str, str] | None = None,
        signature: str | None = None,
        grpc: bool = False,
        release: str | None = None,
        timeout: float = 60.0,
        short: bool = False,
    ) -> Any:
        """Ask the model, as TensorFlow Serving's APIs have it; over HTTP, or over gRPC with
        ``grpc``.

        Args:
            inputs: Values by the names of inputs, in columns (``{"X": [[10.0]]}``); over HTTP also
                a list of rows. Arrays of NumPy, pandas, PyTorch and the like are taken wherever
                lists are.
            types: Of inputs, over gRPC (``{"X": "float32"}``); for the others what the model takes.
            signature: Use this signature instead of the default one.
            grpc: Ask over gRPC; nothing has to be installed for it.
            release: Who is to answer: ``stable``, ``candidate``, or the number of a release.
            timeout: Seconds.
            short: Over gRPC, a float32 with as few digits as tell it (29.955246 and not
                29.955245971679688), as HTTP has them; a microsecond a value.

        Returns:
            The outputs by name; for rows a list of predictions.

        Raises:
            InvalidRequest: The inputs do not fit; the message says what would.
            NotFound: The service is deleted.
            Unavailable: The service has no address, or no replica answers now.
        """
        predictions = self._get_predictions()
        try:
            if not grpc:
                return predictions.over_http(
                    inputs, signature=signature, release=release, timeout=timeout
                )
            return predictions.over_grpc(
                inputs,
                types or {},
                signature=signature,
                release=release,
                timeout=timeout,
                short=short,
            )
        except (NobodyThere, Unauthenticated, Forbidden):
            # Nobody may have the port of a deleted service, or another service may.
            self._check_exists()
            raise

    def signatures(self, *, release: str | None = None) -> ServiceSignatures:
        """What the model can be asked: its inputs and outputs; with ``release="candidate"`` what
        the candidate can.

        Raises:
            Unavailable: No replica answers now.
        """
        return self._calls.signatures(self.name, self.version, release=release)

    def metrics(self) -> ServiceMetrics:
        """What replicas use now and were asked since they started, and what callers got from
        each release.
        """
        return self._calls.metrics(self.name, self.version)

    def lineage(self, *, release: str | None = None) -> ServiceLineage:
        """Where the model came from: its files, and the jobs that exported to where they lie.

        With ``release="candidate"`` where that of the candidate came from.
        """
        return self._calls.lineage(self.name, self.version, release=release)

    def events(self, *, after: int = 0) -> list[JobEvent]:
        """What happened to the service, in order; only what came after the event with the id
        ``after``.
        """
        return self._calls.events(self.name, self.version, after=after)

    def watch_events(self, *, after: int = 0) -> Generator[JobEvent]:
        """What happened to the service and what happens, as it does, until it is gone; cut
        connections are made anew.

        Only what came after the event with the id ``after``.
        """
        stream = follow_events(
            lambda at: self._calls.watch_events(self.name, self.version, after=at),
            after=after or None,
        )
        with closing(stream) as events:
            yield from events

    def logs(
        self,
        *,
        replica: int | None = None,
        previous: bool = False,
        follow: bool = False,
        lines: int | None = None,
        attempt: int | None = None,
        installation: bool = True,
        timestamps: bool = False,
    ) -> Generator[bytes]:
        """The output of a replica in chunks, as it was written.

        Args:
            replica: Its number, also of one that has ended (``service.ended``); otherwise one that
                runs.
            previous: The replica that ended last; it is meant as well where there is none now.
            follow: Go on until the replica has ended, across cut connections.
            lines: Only the last so many lines of what there is now.
            attempt: Only this attempt, counted from 1; otherwise all, one behind the other.
            installation: False leaves out what was written before and after the model server ran.
            timestamps: Put a time in UTC before each line.
        """
        source = ReplicaLog(
            self._calls,
            self.name,
            self.version,
            replica,
            attempt,
            previous=previous,
            installation=installation,
            timestamps=timestamps,
        )
        if not follow:
            with source.open(follow=False, lines=lines) as answer:
                yield from answer
            return
        begun = False
        try:
            with closing(follow_log(source, lines=lines, attempt=attempt)) as chunks:
                for chunk in chunks:
                    begun = True
                    yield chunk
        except (InvalidRequest, NotFound):
            if not begun:
                raise  # else it was deleted meanwhile, with its log

    def update(self, **changes: Any) -> Service:
        """Change fields of the service (``replicas=2``); what makes replicas differ is rolled out
        one after the other.

        With ``canary=10`` it is tried on so many percent of calls, until ``promote`` or
        ``rollback``.

        Raises:
            InvalidRequest: A field is wrong, or there is none of that name.
        """
        self.service = self._calls.update(self.name, self.version, make_update(changes))
        return self.service

    def promote(self) -> Service:
        """Serve the candidate that was last heard of, rolled out one replica after the other.

        Raises:
            Conflict: There is none, or it does not answer.
        """
        tried = self.service.candidate
        self.service = self._calls.promote(
            self.name, self.version, release=tried.release if tried is not None else None
        )  # fmt: skip
        return self.service

    def rollback(self, to: int | None = None) -> Service:
        """Drop the candidate that was last heard of; where there is none, serve what was served
        before. With ``to``, serve the release of that number; later ones are discarded.

        Raises:
            Conflict: There is nothing to go back to, or the release is not kept.
        """
        if to is not None:
            self.service = self._calls.rollback(self.name, self.version, to=to)
            return self.service
        tried = self.service.candidate
        goes = tried.release if tried is not None else self.service.release
        self.service = self._calls.rollback(self.name, self.version, release=goes or None)
        return self.service

    def start(self) -> Service:
        """Start a saved or stopped service."""
        self.service = self._calls.start(self.name, self.version)
        return self.service

    def stop(self, *, grace: str | None = None) -> Service:
        """End every replica; the service stays and can be started again."""
        self.service = self._calls.stop(self.name, self.version, grace=grace)
        return self.service

    def delete(self) -> Service:
        """Ask for the service's removal: its replicas end, and then its name and version are
        free.
        """
        self.service = self._calls.delete(self.name, self.version, self.service)
        return self.service

    def _get_predictions(self) -> Predictions:
        """What asks the model at the service's address."""
        if not self.service.address:
            self.refresh()
        if self._predictions is None or self._predictions.address != self.service.url:
            check_address(self.service)
            self._predictions = Predictions(
                self._calls.transport.credentials, self.service.url, self.name
            )
        return self._predictions

    def _check_exists(self) -> None:
        """Raise ``NotFound`` if the service is deleted; nothing where the server does not say."""
        try:
            self.refresh()
        except NotFound:
            raise
        except CloudMlError:
            return

    def wait_for_news(self, wait_s: float) -> None:
        """Wait so long for a change; a server that is away is given the same patience as a log
        that is followed.
        """
        try:
            self.await_change(wait_s)
        except (TransportError, TryAgain):
            self._failures += 1
            if self._failures >= PATIENCE.attempts:
                self._failures = 0
                raise
            delay_s = PATIENCE.backoff(self._failures, random.random())  # noqa: S311 - spreads retries, guards nothing
            pause(min(delay_s, wait_s))
        else:
            self._failures = 0


class ReplicaLog:
    """The ``LogSource`` of one replica: the one that is meant at first, also when others have
    come.
    """

    def __init__(
        self,
        calls: ServiceCalls,
        name: str,
        version: str,
        replica: int | None,
        attempt: int | None,
        *,
        previous: bool,
        installation: bool = True,
        timestamps: bool = False,
    ) -> None:
        self._calls = calls
        self._installation = installation
        self._timestamps = timestamps
        self._name = name
        self._version = version
        self._attempt = attempt
        self._replica = replica
        self._previous = previous

    def open(self, *, follow: bool, offset: int = 0, lines: int | None = None) -> Answer:
        """The output without its first ``offset`` bytes."""
        answer = self._calls.log(
            self._name,
            self._version,
            replica=self._replica,
            previous=self._previous,
            lines=lines,
            follow=follow,
            attempt=self._attempt,
            offset=offset,
            installation=self._installation,
            timestamps=self._timestamps,
        )
        # From now on by its number: the next call must not go on in the log of another replica.
        self._replica, self._previous = int(answer.headers["cloudml-replica"]), False
        return answer

    def job(self, newer_than: int | None = None) -> Written:
        """How the replica stands."""
        service = self._calls.get(
            self._name, self._version, newer_than=newer_than, wait_s=LONG_POLL_S
        )
        found = next((one for one in service.replicas if one.number == self._replica), None)
        if found is None:
            return Written(service.revision, "Stopped", finished=True)
        return Written(
            service.revision, found.phase, found.attempt, finished=found.phase in FINISHED
        )


def make_update(changes: Mapping[str, Any]) -> ServiceUpdate:
    """Fields to change as the server takes them.

    Raises:
        InvalidRequest: There is no such field.
    """
    from cloud_ml.models import codec  # noqa: PLC0415 - few need it

    return codec.decode(
        ServiceUpdate, {name: value for name, value in changes.items() if value is not None}
    )
