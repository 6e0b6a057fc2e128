"""Runs without a job, to which a block of code logs.

::

    async with client.run("from-a-laptop", experiment="digits", params={"lr": 0.1}) as run:
        for step in range(100):
            await run.log(step, loss=train(step))
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from cloud_ml.errors import CloudMlError, InvalidRequest, TransportError
from cloud_ml.models.tracking.metrics import LoggedValue

if TYPE_CHECKING:
    from cloud_ml.aio.runs import AsyncRuns

_MOST_VALUES = 1000
"""Of one call, as MLflow has it."""
_SEND_EVERY_S = 1.0


class AsyncLoggedRun:
    """A run that begins and ends with a block. It is ``FINISHED`` if the block ends well, ``FAILED``
    if it raises, and ``KILLED`` if it is interrupted.

    Values are sent once a second, and at the end of the block: a process that is killed loses those
    of its last second.
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
        self._sent_at = time.monotonic()
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
        if kind is None:
            await self.send()
            await self._runs.finish(self._uid)
            return
        # The error of the block is what its user has to see.
        with contextlib.suppress(CloudMlError):
            await self.send()
        with contextlib.suppress(CloudMlError):
            await self._runs.finish(
                self._uid, "FAILED" if issubclass(kind, Exception) else "KILLED"
            )

    async def log(self, step: int | None = None, /, **metrics: float) -> None:
        """Log values of metrics. Without a step, a value follows the last one of its metric.

        Raises:
            InvalidRequest: A name or a value is wrong. It may be raised by a later call.
        """
        at = round(time.time() * 1000)
        numbers = {name: _number(name, value) for name, value in metrics.items()}
        for name, value in numbers.items():
            number = self._steps.get(name, -1) + 1 if step is None else step
            self._steps[name] = number
            self._unsent.append(LoggedValue(name, value, number, at))
        if len(self._unsent) >= _MOST_VALUES or time.monotonic() - self._sent_at >= _SEND_EVERY_S:
            await self.send()

    async def params(self, **values: object) -> None:
        """Log parameters. One never changes its value.

        Raises:
            InvalidRequest: A parameter has another value already.
        """
        texts = {name: str(value) for name, value in values.items()}
        await self._runs.log(self._uid, params=texts)

    async def tags(self, **values: str) -> None:
        """Set tags."""
        await self._runs.log(self._uid, tags=values)

    async def send(self) -> None:
        """Send what was logged so far. Values that could not be sent are sent with the next ones."""
        unsent, self._unsent = self._unsent, []
        self._sent_at = time.monotonic()
        try:
            while unsent:
                await self._runs.log(self._uid, metrics=unsent[:_MOST_VALUES])
                unsent = unsent[_MOST_VALUES:]
        except TransportError:
            self._unsent = [*unsent, *self._unsent]
            raise


def _number(name: str, value: object) -> float:
    """A value as a number: of Python, numpy, or a tensor of one element."""
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        given = repr(value)[:80]
        raise InvalidRequest(
            f"{name} is {given}; allowed is a number", field=name, value=given, allowed="a number"
        ) from None
