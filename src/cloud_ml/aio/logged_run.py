"""Runs without a job, to which a block of code logs.

::

    async with client.run("from-a-laptop", experiment="digits", params={"lr": 0.1}) as run:
        for step in range(100):
            await run.log(step, loss=train(step))
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from cloud_ml.aio.outages import outlast_outage
from cloud_ml.errors import CloudMlError, InvalidRequest, TransportError, TryAgain
from cloud_ml.models.tracking.metrics import LoggedValue
from cloud_ml.models.tracking.run_keys import check_key, check_step
from cloud_ml.sdk.timeouts import PATIENCE

if TYPE_CHECKING:
    from cloud_ml.aio.runs import AsyncRuns

_MOST_VALUES = 1000
"""Of one call, as MLflow has it."""
_SEND_EVERY_S = 1.0
_MOST_WAITING = 100_000
"""Values that wait while the server is away: some 20 MB."""


class AsyncLoggedRun:
    """A run that begins and ends with a block. It is ``FINISHED`` if the block ends well, ``FAILED``
    if it raises, and ``KILLED`` if it is interrupted.

    Values are sent once a second, and at the end of the block: a process that is killed loses those
    of its last second. While the server is away, for a restart or an upgrade, values wait and the
    block goes on; its end waits for the server for about two minutes.
    """

    def __init__(
        self,
        runs: AsyncRuns,
        name: str,
        *,
        experiment: str | None,
        params: Mapping[str, object] | None,
        tags: Mapping[str, str] | None,
    ) -> None:
        self._runs = runs
        self._experiment = experiment
        self._params = dict(params or {})
        self._tags = dict(tags or {})
        self._uid = ""
        self._steps: dict[str, int] = {}
        self._unsent: list[LoggedValue] = []
        self._failures = 0
        self._send_at = time.monotonic() + _SEND_EVERY_S
        self.name = name

    def __repr__(self) -> str:
        return f"<run {self.name} {self._uid}>"

    @property
    def uid(self) -> str:
        """What tells the run from all others; empty before the block begins."""
        return self._uid

    async def __aenter__(self) -> Self:
        experiment = None
        if self._experiment is not None:
            experiment = await self._runs.ensure_experiment(self._experiment)
        self._uid = await self._runs.create(self.name, experiment, tags=self._tags)
        if self._params:
            await self.params(**self._params)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None and not issubclass(kind, Exception):  # it is to end now
            await self._end_at_once("KILLED")
            return
        try:
            await outlast_outage(self.send)
        except CloudMlError:
            await self._end_at_once("FAILED")
            if kind is None:
                raise
            return  # the error of the block is what its user has to see
        try:
            await outlast_outage(lambda: self._finish("FINISHED" if kind is None else "FAILED"))
        except CloudMlError:
            if kind is None:
                raise

    async def _end_at_once(self, state: str) -> None:
        """End the run, if the server answers now."""
        with contextlib.suppress(CloudMlError):
            await self.send()
        with contextlib.suppress(CloudMlError):
            await self._finish(state)

    async def _finish(self, state: str) -> None:
        await self._runs.finish(self._uid, state)

    async def log(self, step: int | None = None, /, **metrics: float) -> None:
        """Log values of metrics. Without a step, a value follows the last one of its metric.

        Raises:
            InvalidRequest: A step, a name or a value is wrong; nothing of this call is logged.
            TransportError: The server has been away for so long that 100,000 values wait.
        """
        at = round(time.time() * 1000)
        if step is not None:
            step = check_step(step)
        numbers = {
            check_key("the name of a metric", name): _number(name, value)
            for name, value in metrics.items()
        }
        for name, value in numbers.items():
            number = self._steps.get(name, -1) + 1 if step is None else step
            self._steps[name] = number
            self._unsent.append(LoggedValue(name, value, number, at))
        is_full = len(self._unsent) >= _MOST_VALUES and not self._failures
        if not is_full and time.monotonic() < self._send_at:
            return
        try:
            await self.send()
        except (TransportError, TryAgain):
            if len(self._unsent) >= _MOST_WAITING:
                raise

    async def params(self, **values: object) -> None:
        """Log parameters. One never changes its value.

        Raises:
            InvalidRequest: A parameter has another value already.
        """
        texts = {name: str(value) for name, value in values.items()}
        await outlast_outage(lambda: self._runs.log(self._uid, params=texts))

    async def tags(self, **values: str) -> None:
        """Set tags."""
        await outlast_outage(lambda: self._runs.log(self._uid, tags=values))

    async def send(self) -> None:
        """Send what was logged so far. Values that could not be sent are sent with the next ones.

        Raises:
            TransportError: The server does not answer.
            CloudMlError: It refuses a thousand values at once, such as for a quota. They are lost.
        """
        waiting, self._unsent = self._unsent, []
        self._send_at = time.monotonic() + _SEND_EVERY_S
        try:
            while waiting:
                await self._runs.log(self._uid, metrics=waiting[:_MOST_VALUES])
                waiting = waiting[_MOST_VALUES:]
            self._failures = 0
        except (TransportError, TryAgain):
            self._failures += 1
            delay = PATIENCE.backoff(self._failures, random.random())  # noqa: S311 - guards nothing
            self._send_at = time.monotonic() + delay
            raise
        except CloudMlError:
            waiting = waiting[_MOST_VALUES:]
            raise
        finally:
            self._unsent = [*waiting, *self._unsent]


def _number(name: str, value: object) -> float:
    """A value as a number: of Python, numpy, or a tensor of one element."""
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        given = repr(value)[:80]
        raise InvalidRequest(
            f"{name} is {given}; allowed is a number", field=name, value=given, allowed="a number"
        ) from None
