"""Requests that arrive together run together: one call of the model for all of them.

What arrives in one turn of the event loop is a batch; nobody waits for a timer. A model that takes
long runs in a thread, and what arrives meanwhile is its next batch; it lies ready for the thread
once nothing more fits into it. Every caller is answered for itself: one that gave up, or whose
deadline passed, is left out, and a batch that fails is run again one by one, so that only who
caused it is told.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from cloud_ml.net.loop_iteration import LoopIteration
from cloud_ml.serving.batch_sizer import BatchSizer
from cloud_ml.serving.call_metrics import Tally
from cloud_ml.serving.errors import ModelFailed, Overloaded, ServingError, TooLate
from cloud_ml.serving.latency_estimate import LatencyEstimate
from cloud_ml.serving.model_queue import Batch, ModelQueue
from cloud_ml.serving.runtimes.base import Array, Model
from cloud_ml.serving.signatures import Shape, Signature
from cloud_ml.serving.worker_threads import WorkerThreads

Values = bytes | bytearray | memoryview | Array
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
    """What a model gave for a batch.

    ``texts`` and ``packed`` keep the rows of an output as one form wrote them, for the others in
    the batch.
    """

    __slots__ = ("_raw", "arrays", "packed", "texts")

    def __init__(self, arrays: Sequence[Array]) -> None:
        self.arrays = arrays
        self.texts: dict[int, list[bytes]] = {}
        self.packed: dict[int, list[bytes]] = {}
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

    def __init__(
        self, call: Call, form: Form, tensors: Sequence[Values], rows: int, deadline: float
    ) -> None:
        self.call = call
        self.form = form
        self.tensors = tensors
        self.rows = rows
        self.deadline = deadline


@dataclass(frozen=True, slots=True)
class Policy:
    """How much goes together.

    Rows in a batch; sizes to which batches are filled up, for models that are compiled for each
    size; requests that may wait for a signature; seconds of a run that are worth a thread.
    """

    max_batch_rows: int = 1024
    allowed_rows: tuple[int, ...] = ()
    max_queue: int = 10_000
    inline_s: float = 0.001

    def filled(self, rows: int) -> int:
        """How many rows a batch of so many is run with."""
        return min((size for size in self.allowed_rows if size >= rows), default=rows)


@dataclass(frozen=True, slots=True)
class BatchContext:
    """Where batches are put together and run."""

    loop: asyncio.AbstractEventLoop
    iteration: LoopIteration
    aside: WorkerThreads
    policy: Policy = Policy()

    def queue(self) -> ModelQueue:
        """The queue of one more model."""
        return ModelQueue(self.loop, self.iteration, self.aside, self.policy.inline_s)


class Batcher:
    """Queues and runs the requests of one signature of one version. ``queue`` is that of the
    model.
    """

    def __init__(
        self, model: Model, signature: Signature, context: BatchContext, queue: ModelQueue
    ) -> None:
        self._model = model
        self._signature = signature
        self._policy = context.policy
        self._loop = context.loop
        self._queue = queue
        self._groups: dict[tuple[Shape, ...], list[Request]] = {}
        self._waiting = 0
        self._oldest = 0.0  # when the first of those that wait came
        self._estimate = LatencyEstimate()
        self.least_seconds = self._estimate.least
        self._sizer = BatchSizer(context.policy.inline_s)
        self.runs = 0
        self.rows = 0
        self.tally = Tally()

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return self._waiting

    @property
    def idle(self) -> bool:
        """Whether nothing waits, and the model does not run."""
        return not self._waiting and not self._queue.running

    def submit(self, request: Request, tails: tuple[Shape, ...]) -> None:
        """Run a request with others of the same ``tails``: the shapes of its tensors without the
        rows.

        Raises:
            Overloaded: at once, where too many wait.
        """
        if self._waiting >= self._policy.max_queue:
            raise Overloaded(f"{self._waiting} requests wait for this model already")
        group = self._groups.get(tails)
        if group is None:
            group = self._groups[tails] = []
            self._queue.groups.append((self, tails, group))
        group.append(request)
        self._waiting += 1
        if self._waiting == 1:
            self._oldest = time.perf_counter()  # the time of the loop goes by milliseconds
            self._queue.wake()
        elif self._queue.running and not self._queue.ahead:
            self._queue.wake()

    def limit(self, tails: tuple[Shape, ...], waiting: int) -> int:
        """The most rows of a batch."""
        if not self._signature.batched:
            return 1
        most = self._policy.max_batch_rows
        return self._sizer.limit(tails, waiting, most) if self._sizer.searches else most

    def take(self, tails: tuple[Shape, ...], waiting: list[Request]) -> Batch:
        """Take the next batch from a group, without those who do not want an answer any more."""
        batch: list[Request] = []
        now, rows, limit = self._loop.time(), 0, self.limit(tails, len(waiting))
        for taken, request in enumerate(waiting):
            # A request that is larger than the limit by itself runs alone.
            if batch and (rows + request.rows > limit or not self._signature.batched):
                del waiting[:taken]
                break
            self._waiting -= 1
            if request.deadline and request.deadline < now:
                self._fail(request, TooLate("the deadline passed while the request waited"))
            elif request.call.waits():
                rows += request.rows
                batch.append(request)
        else:
            waiting.clear()
            del self._groups[tails]
        return Batch(self, batch, tails, rows, self._oldest)

    def run(self, batch: Batch) -> "Outcome | list[Outcome | ServingError]":
        """The outcome of the whole batch, or where that fails of each request alone."""
        try:
            return self._call(batch)
        except ServingError as error:
            if len(batch.requests) == 1:
                return [error]
        alone: list[Outcome | ServingError] = []
        for request in batch.requests:
            try:
                alone.append(
                    self._call(Batch(self, [request], batch.tails, request.rows, batch.since))
                )
            except ServingError as error:
                alone.append(error)
        return alone

    def _call(self, batch: Batch) -> Outcome:
        """One call of the model. Whatever it raises becomes an error for those who wait."""
        rows = filled = batch.rows
        taken = time.perf_counter()
        try:
            inputs = [self._input(place, batch) for place in range(len(batch.tails))]
            if self._policy.allowed_rows and rows and self._signature.batched:
                filled = self._policy.filled(rows)
            if filled != rows:
                inputs = [
                    # A row that a caller sent is one that the model can take; zeros may be none.
                    np.concatenate([each, np.repeat(each[-1:], filled - rows, 0)])
                    for each in inputs
                ]
            begun = time.perf_counter()
            outputs = self._model.predict(self._signature, inputs)
            took = time.perf_counter() - begun
            outcome = self._outcome(outputs, rows, filled)
        except ServingError:
            raise
        except (
            Exception,
            SystemExit,
        ) as error:  # a class of a user may call sys.exit, which is not for us
            raise ModelFailed(
                f"the model failed: {type(error).__name__}: {error}"[:2000]
            ) from error
        self._learn(batch.tails, rows, took, begun - taken)
        self.runs += 1
        self.rows += rows
        self.tally.count_run(rows, len(batch.requests), begun, took, begun - taken)
        return outcome

    def _learn(self, tails: tuple[Shape, ...], rows: int, took: float, copying: float) -> None:
        """What a run says of those to come: whether they need a thread, and how many rows go well
        together.

        ``copying`` is how long it took to bring the rows to one place.
        """
        self._estimate.add(tails, rows, took)
        inline_s = self._policy.inline_s
        long = took > inline_s and self._estimate.least(tails, rows) > inline_s
        if long or (self._sizer.searches and self._sizer.follows(tails)):
            self._sizer.ran(tails, rows, took + copying)

    def _outcome(self, outputs: Sequence[Array], rows: int, filled: int) -> Outcome:
        """What came back, if it can be split: as many rows as went in, without those that only
        filled up.
        """
        if self._signature.batched:
            for spec, output in zip(self._signature.outputs, outputs, strict=True):
                if not output.ndim or len(output) != filled:
                    raise ModelFailed(
                        f"output {spec.name!r} has shape {list(output.shape)} for {filled} rows"
                    )
            if filled != rows:
                outputs = [output[:rows] for output in outputs]
        return Outcome(outputs)

    def _input(self, place: int, batch: Batch) -> Array:
        """One input for the whole batch."""
        dtype = self._signature.inputs[place].dtype.numpy
        parts = [request.tensors[place] for request in batch.requests]
        shape = (batch.rows, *batch.tails[place]) if self._signature.batched else batch.tails[place]
        if len(parts) == 1:
            only = parts[0]
            return (
                only if isinstance(only, np.ndarray) else np.frombuffer(only, dtype).reshape(shape)
            )
        if dtype.hasobject:
            return np.concatenate([part for part in parts if isinstance(part, np.ndarray)])
        flat: list[Any] = [
            np.ascontiguousarray(part) if isinstance(part, np.ndarray) else part for part in parts
        ]
        return np.frombuffer(b"".join(flat), dtype).reshape(shape)

    def deliver(self, batch: Batch, done: "Outcome | list[Outcome | ServingError]") -> None:
        """Answer everybody."""
        failed = 0
        if isinstance(done, Outcome):
            first = 0
            for request in batch.requests:
                self._send(request, done, first)
                first += request.rows
        else:
            for request, own in zip(batch.requests, done, strict=True):
                if isinstance(own, Outcome):
                    self._send(request, own, 0)
                else:
                    failed += 1
                    self._fail(request, own)
        elapsed = time.perf_counter() - batch.since
        self.tally.request_s.add(elapsed, len(batch.requests))
        if failed:
            self.tally.failed_s += failed * elapsed

    def _send(self, request: Request, outcome: Outcome, first: int) -> None:
        try:
            request.form.send(request.call, outcome, first, request.rows)
        except ServingError as error:
            self._fail(request, error)
        except Exception as error:
            self._fail(
                request,
                ModelFailed(
                    f"the answer cannot be written: {type(error).__name__}: {error}"[:2000]
                ),
            )
        else:
            self.tally.answers[request.call.protocol, 0] += 1

    def _fail(self, request: Request, error: ServingError) -> None:
        self.tally.answers[request.call.protocol, error.grpc] += 1
        request.call.fail(error)
