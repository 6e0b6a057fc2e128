"""A server of models without sockets, threads or time: what is fed to it is answered when
``settle`` is called.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from cloud_ml.net.http1.clock import Clock
from cloud_ml.net.http1.connection import Http1Connection
from cloud_ml.net.http1.heads import Heads
from cloud_ml.net.http1.limits import Limits as Http1Limits
from cloud_ml.net.http2.connection import Http2Connection
from cloud_ml.net.http2.stream import Limits
from cloud_ml.net.loop_iteration import LoopIteration
from cloud_ml.serving import dtypes
from cloud_ml.serving.batching import BatchContext
from cloud_ml.serving.call_metrics import Refusals
from cloud_ml.serving.grpc.infer import Infer
from cloud_ml.serving.grpc.prediction import Prediction
from cloud_ml.serving.grpc.service import GrpcService
from cloud_ml.serving.loaded import LoadedVersion
from cloud_ml.serving.oip.routes import OpenInferenceRoutes
from cloud_ml.serving.rest.invocations import InvocationsDoor
from cloud_ml.serving.rest.routes import RestRoutes
from cloud_ml.serving.rest.service import HttpService
from cloud_ml.serving.signatures import Signature, TensorSpec
from cloud_ml.serving.table import ModelTable
from cloud_ml.serving.versions.version_manager import Rules, VersionManager

PREDICT, INFER = (
    "/tensorflow.serving.PredictionService/Predict",
    "/inference.GRPCInferenceService/ModelInfer",
)
MOST = 1 << 16


class Loop:
    """Calls back what was registered, in order; its time stands still."""

    def __init__(self) -> None:
        self._calls: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()

    def time(self) -> float:
        return 1000.0

    def call_soon(self, call: Callable[..., Any], *given: Any) -> None:
        self._calls.append((call, given))

    call_soon_threadsafe = call_soon

    def settle(self) -> None:
        while self._calls:
            call, given = self._calls.popleft()
            call(*given)


class _AtOnce:
    has_waiting_work = False

    def run(self, work: Callable[[], None]) -> None:
        work()


class Mirror:
    """A model that gives back what it was given."""

    def __init__(self) -> None:
        def sides(*specs: TensorSpec) -> dict[str, Any]:
            return {
                "inputs": specs,
                "outputs": tuple(TensorSpec(f"{s.name}_", s.dtype, s.shape) for s in specs),
            }

        x, k = TensorSpec("x", dtypes.FLOAT, (-1, 2)), TensorSpec("k", dtypes.INT64, (-1,))
        other = TensorSpec("x2", dtypes.FLOAT, (-1, 2))
        keys = TensorSpec("keys", dtypes.INT32, (-1, 1))
        wholes = (dtypes.INT8, dtypes.UINT16, dtypes.UINT32, dtypes.UINT64)
        whole = [TensorSpec(name, dtype, (-1,)) for name, dtype in zip("abcd", wholes, strict=True)]
        self.signatures = {
            each.name: each
            for each in (
                Signature("serving_default", **sides(x)),
                Signature("two", **sides(x, other)),
                Signature("mixed", **sides(x, k)),
                Signature("text", **sides(TensorSpec("t", dtypes.STRING, (-1,)))),
                Signature("half", **sides(TensorSpec("h", dtypes.HALF, (-1,)))),
                Signature("truth", **sides(TensorSpec("b", dtypes.BOOL, (-1,)))),
                Signature("slides", **sides(keys, TensorSpec("X", dtypes.FLOAT, (-1, 1)))),
                Signature("whole", **sides(*whole)),
                Signature("fixed", **sides(TensorSpec("f", dtypes.DOUBLE, (2,)))),
            )
        }

    def predict(self, signature: Signature, inputs: Sequence[Any]) -> Sequence[Any]:
        return list(inputs)

    def close(self) -> None:
        pass


class World:
    """A table with one model, ``m``, or with other versions, and all that reads requests to it."""

    def __init__(self, versions: Sequence[tuple[str, int]] = (("m", 1),)) -> None:
        self.loop: Any = Loop()
        self.iteration = LoopIteration(self.loop)
        self.table = ModelTable()
        aside: Any = _AtOnce()
        for name, number in versions:
            self.table.put(
                LoadedVersion(
                    name, number, Mirror(), BatchContext(self.loop, self.iteration, aside)
                )
            )
        self.methods = {PREDICT: Prediction(self.table).predict, INFER: Infer(self.table).infer}
        self.grpc = GrpcService(self.methods, MOST, self.loop)
        nobody: Any = None  # no version comes or goes
        manager = VersionManager(self.table, nobody, Rules(), nobody)
        doors = [
            RestRoutes(self.table, manager),
            OpenInferenceRoutes(self.table, manager, control=False),
            InvocationsDoor(self.table, manager),
        ]
        self.http = HttpService(doors, Refusals())

    def call(self, method: str, message: bytes) -> tuple[int, bytes]:
        """The status and the message that a call gets."""
        return self.calls(method, [message])[0]

    def calls(self, method: str, messages: Sequence[bytes]) -> list[tuple[int, bytes]]:
        """The same for calls that arrive together."""
        self.grpc._methods = {method.encode(): self.methods[method]}
        head = self.grpc.understand(
            [
                (b":method", b"POST"),
                (b"content-type", b"application/grpc"),
                (b":path", method.encode()),
            ]
        )
        calls: list[Any] = [Call() for _ in messages]
        for call, message in zip(calls, messages, strict=True):
            self.grpc.serve(call, 1, head, b"\0" + len(message).to_bytes(4, "big") + message)
        self.loop.settle()
        return [call.outcome() for call in calls]

    def http1(self) -> tuple[Any, Transport]:
        connection: Any = Http1Connection(
            self.http,
            Heads(self.http.understand),
            Http1Limits(body_bytes=MOST),
            self.iteration,
            Clock(self.loop),
        )
        return _opened(connection)

    def http2(self) -> tuple[Any, Transport]:
        return _opened(
            Http2Connection(self.grpc, Limits(MOST, lambda stream: (b"",)), self.iteration)
        )


class Call:
    """A connection with one stream, which keeps what it is answered with."""

    def __init__(self) -> None:
        self._answer: tuple[bytes, bytes] | None = None

    def waits(self, number: int) -> bool:
        return self._answer is None

    def answer(self, number: int, head: bytes, body: Any = (0, ()), trailers: bytes = b"") -> None:
        assert self._answer is None, "answered twice"
        size, pieces = body
        assert size == len(b"".join(pieces)), "a length that is wrong"
        self._answer = head, b"".join(pieces)

    def outcome(self) -> tuple[int, bytes]:
        """0 and the message, or the status and its block."""
        assert self._answer is not None, "never answered"
        head, body = self._answer
        if body:
            assert int.from_bytes(body[1:5], "big") == len(body) - 5
            return 0, body[5:]
        status = int(head.partition(b"grpc-status")[2][1:].partition(b"\0")[0])
        return status, head


class Transport:
    """Keeps what is written, until it is closed."""

    def __init__(self) -> None:
        self.written = b""
        self.closed = False

    def write(self, data: bytes) -> None:
        if not self.closed:
            self.written += data

    def close(self) -> None:
        self.closed = True

    abort = write_eof = close

    def is_closing(self) -> bool:
        return self.closed

    def can_write_eof(self) -> bool:
        return True

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading


def _opened(connection: Any) -> tuple[Any, Transport]:
    transport = Transport()
    connection.connection_made(transport)
    return connection, transport
