"""Requests that arrive together run together: one call of the model for all of them.

What arrives in one turn of the event loop is a batch; nobody waits for a timer. A model that takes long runs in a
thread, and what arrives meanwhile is its next batch. Every caller is answered for itself: one that gave up, or whose
deadline passed, is left out, and a batch that fails is run again one by one, so that only who caused it is told.
"""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from cloud_ml.serving.errors import ModelFailed, Overloaded, ServingError, TooLate
from cloud_ml.serving.runtimes.base import Array, Model
from cloud_ml.serving.signatures import Shape, Signature
from cloud_ml.serving.tallies import Tally
from cloud_ml.serving.turns import Turns

Values = bytes | memoryview | Array
"""A tensor of a request: an array, or its bytes."""


class Call(Protocol):
    """Who asked, whatever the protocol, which is named for those who count."""

    protocol: str

    def waits(self) -> bool:
        """Whether it still waits for an answer."""

    def fail(self, error: ServingError) -> None:
        """Answer with an error."""


class Form(Protocol):
    """How an answer is written."""

    def send(self, call: Any, outcome: "Outcome", first: int, rows: int) -> None:
        """Answer a call with its rows of the outcome."""


class Outcome:
    """What a model gave for a batch."""

    __slots__ = ("_raw", "arrays")

    def __init__(self, arrays: Sequence[Array]) -> None:
        self.arrays = arrays
        self._raw: list[bytes | None] = [None] * len(arrays)

    def raw(self, place: int) -> bytes:
        """The bytes of an output, for the whole batch."""
        made = self._raw[place]
        if made is None:
            made = self._raw[place] = self.arrays[place].tobytes()
        return made


class Request:
    """One call, read and checked.

    ``tensors`` are in the order of the signature; ``deadline`` is in the loop's time, 0 for none.
    """

    __slots__ = ("call", "deadline", "form", "rows", "tensors")

    def __init__(self, call: Call, form: Form, tensors: Sequence[Values], rows: int, deadline: float) -> None:
        self.call = call
        self.form = form
        self.tensors = tensors
        self.rows = rows
        self.deadline = deadline


@dataclass(frozen=True, slots=True)
class Policy:
    """How much goes together.

    Rows in a batch; sizes to which batches are filled up, for models that are compiled for each size; requests that
    may wait for a signature; seconds of a run that are worth a thread.
    """

    max_batch_rows: int = 1024
    allowed_rows: tuple[int, ...] = ()
    max_queue: int = 10_000
    inline_s: float = 0.001

    def filled(self, rows: int) -> int:
        """How many rows a batch of so many is run with."""
        return min((size for size in self.allowed_rows if size >= rows), default=rows)


@dataclass(frozen=True, slots=True)
class Workshop:
    """Where batches are put together and run."""

    loop: asyncio.AbstractEventLoop
    turns: Turns
    threads: Executor
    policy: Policy = Policy()


class Batcher:
    """Queues and runs the requests of one signature of one version."""

    def __init__(self, model: Model, signature: Signature, workshop: Workshop) -> None:
        self._model = model
        self._signature = signature
        self._policy = workshop.policy
        self._turns = workshop.turns
        self._threads = workshop.threads
        self._loop = workshop.loop
        self._groups: dict[tuple[Shape, ...], list[Request]] = {}
        self._waiting = 0
        self._oldest = 0.0  # when the first of those that wait came
        self._running = False
        self._run_s = 1.0  # taken for slow until seen: the first run may compile
        self.runs = 0
        self.rows = 0
        self.tally = Tally()

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return self._waiting

    @property
    def idle(self) -> bool:
        """Whether nothing waits or runs."""
        return not self._waiting and not self._running

    def submit(self, request: Request, tails: tuple[Shape, ...]) -> None:
        """Run a request with others of the same ``tails``: the shapes of its tensors without the rows.

        Raises:
            Overloaded: at once, where too many wait.
        """
        if self._waiting >= self._policy.max_queue:
            raise Overloaded(f"{self._waiting} requests wait for this model already")
        group = self._groups.get(tails)
        if group is None:
            group = self._groups[tails] = []
        group.append(request)
        self._waiting += 1
        if self._waiting == 1:
            self._oldest = time.perf_counter()  # the time of the loop goes by milliseconds
            if not self._running:
                self._turns.run(self._next)

    def _next(self) -> None:
        """Run what waits; after it, what came meanwhile."""
        while self._waiting and not self._running:
            batch, tails = self._take()
            if not batch:
                continue
            since = self._oldest
            if self._run_s <= self._policy.inline_s:
                self._deliver(batch, since, self._run(batch, tails))
            else:
                self._running = True
                self._threads.submit(self._run_aside, batch, since, tails)

    def _take(self) -> tuple[list[Request], tuple[Shape, ...]]:
        """The next batch, without those who do not want an answer any more."""
        tails, group = next(iter(self._groups.items()))
        batch: list[Request] = []
        now, rows = self._loop.time(), 0
        limit = self._policy.max_batch_rows if self._signature.batched else 1
        for taken, request in enumerate(group):
            if batch and (rows + request.rows > limit or not self._signature.batched):
                del group[:taken]
                break
            self._waiting -= 1
            if request.deadline and request.deadline < now:
                self._fail(request, TooLate("the deadline passed while the request waited"))
            elif request.call.waits():
                rows += request.rows
                batch.append(request)
        else:
            del self._groups[tails]
            return batch, tails
        self._groups[tails] = self._groups.pop(tails)  # the others' turn
        return batch, tails

    def _run_aside(self, batch: list[Request], since: float, tails: tuple[Shape, ...]) -> None:
        done = self._run(batch, tails)
        self._loop.call_soon_threadsafe(self._came_back, batch, since, done)

    def _came_back(self, batch: list[Request], since: float, done: "Outcome | list[Outcome | ServingError]") -> None:
        self._running = False
        self._deliver(batch, since, done)
        if self._waiting:
            self._turns.run(self._next)

    def _run(self, batch: list[Request], tails: tuple[Shape, ...]) -> "Outcome | list[Outcome | ServingError]":
        """The outcome of the whole batch, or where that fails of each request alone."""
        try:
            return self._call(batch, tails)
        except ServingError as error:
            if len(batch) == 1:
                return [error]
        alone: list[Outcome | ServingError] = []
        for request in batch:
            try:
                alone.append(self._call([request], tails))
            except ServingError as error:
                alone.append(error)
        return alone

    def _call(self, batch: list[Request], tails: tuple[Shape, ...]) -> Outcome:
        """One call of the model. Whatever it raises becomes an error for those who wait."""
        rows = sum([request.rows for request in batch])
        try:
            inputs = [self._input(place, batch, rows, tail) for place, tail in enumerate(tails)]
            filled = (
                self._policy.filled(rows) if self._policy.allowed_rows and rows and self._signature.batched else rows
            )
            if filled != rows:
                inputs = [np.concatenate([each, np.repeat(each[-1:], filled - rows, 0)]) for each in inputs]
            begun = time.perf_counter()
            outputs = self._model.predict(self._signature, inputs)
            took = time.perf_counter() - begun
            outcome = self._outcome(outputs, rows, filled)
        except ServingError:
            raise
        except Exception as error:
            raise ModelFailed(f"the model failed: {type(error).__name__}: {error}"[:2000]) from error
        self._run_s = min(took, self._run_s) if self.runs < 3 else 0.9 * self._run_s + 0.1 * took
        self.runs += 1
        self.rows += rows
        self.tally.run_s.add(took)
        self.tally.rows.add(rows)
        return outcome

    def _outcome(self, outputs: Sequence[Array], rows: int, filled: int) -> Outcome:
        """What came back, if it can be split: as many rows as went in, without those that only filled up."""
        if self._signature.batched:
            for spec, output in zip(self._signature.outputs, outputs, strict=True):
                if not output.ndim or len(output) != filled:
                    raise ModelFailed(f"output {spec.name!r} has shape {list(output.shape)} for {filled} rows")
            if filled != rows:
                outputs = [output[:rows] for output in outputs]
        return Outcome(outputs)

    def _input(self, place: int, batch: list[Request], rows: int, tail: Shape) -> Array:
        """One input for the whole batch."""
        dtype = self._signature.inputs[place].dtype.numpy
        parts = [request.tensors[place] for request in batch]
        if len(parts) == 1:
            only = parts[0]
            if isinstance(only, np.ndarray):
                return only
            shape = (rows, *tail) if self._signature.batched else tail
            return np.frombuffer(only, dtype).reshape(shape)
        if dtype.hasobject:
            return np.concatenate([part for part in parts if isinstance(part, np.ndarray)])
        return np.frombuffer(b"".join([_flat(part) for part in parts]), dtype).reshape((rows, *tail))

    def _deliver(self, batch: list[Request], since: float, done: "Outcome | list[Outcome | ServingError]") -> None:
        first = 0
        for place, request in enumerate(batch):
            own = done if isinstance(done, Outcome) else done[place]
            if isinstance(own, Outcome):
                self._send(request, own, first)
                if own is done:
                    first += request.rows
            else:
                self._fail(request, own)
        self.tally.request_s.add(time.perf_counter() - since, len(batch))

    def _send(self, request: Request, outcome: Outcome, first: int) -> None:
        try:
            request.form.send(request.call, outcome, first, request.rows)
        except ServingError as error:
            self._fail(request, error)
        except Exception as error:
            self._fail(request, ModelFailed(f"the answer cannot be written: {type(error).__name__}: {error}"[:2000]))
        else:
            self.tally.answers[request.call.protocol, 0] += 1

    def _fail(self, request: Request, error: ServingError) -> None:
        self.tally.answers[request.call.protocol, error.grpc] += 1
        request.call.fail(error)


def _flat(part: Values) -> bytes | memoryview:
    return part.tobytes() if isinstance(part, np.ndarray) else part
