"""Requests on a stream of inferences: order, errors, and what may wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cloud_ml.net.tuning import MESSAGES_IN_TURN
from cloud_ml.serving.errors import BadRequest, ServingError
from cloud_ml.serving.grpc import stream_infer, streams
from cloud_ml.serving.grpc.calls import PREFIX
from cloud_ml.serving.grpc.stream_infer import StreamInfer
from cloud_ml.serving.grpc.streams import GrpcStream
from cloud_ml.serving.protos import message


class Connection:
    """What a stream says, and whether the caller is there."""

    def __init__(self) -> None:
        self.responses: list[Any] = []
        self.trailers = b""
        self.held = 0
        self.room = 1 << 30
        self.unread_bytes = 0
        self.paused = False
        self.deferred: list[Callable[[], None]] = []
        self.when_all_is_read: Callable[[], None] | None = None

    def waits(self, number: int) -> bool:
        return not self.trailers

    def begin(self, number: int, head: bytes) -> None: ...

    def push(self, number: int, data: bytes, unread_bytes: int = 0) -> None:
        assert PREFIX.unpack_from(data) == (0, len(data) - 5)
        self.responses.append(message("inference.ModelStreamInferResponse").FromString(data[5:]))

    def hold(self, number: int, size: int) -> bool:
        self.held = size
        return size <= self.room

    def finish(self, number: int, trailers: bytes) -> None:
        self.trailers = trailers

    def unread(self, number: int) -> int:
        return self.unread_bytes

    def when_read(self, number: int, resume: Callable[[], None]) -> None:
        self.when_all_is_read = resume

    def pause(self, number: int) -> None:
        self.paused = True

    def resume(self, number: int) -> None:
        self.paused = False

    def defer(self, resume: Callable[[], None], units: int) -> None:
        self.deferred.append(resume)

    def turns(self) -> int:
        """End turns until nothing is left to do; how many."""
        count = 0
        while self.deferred:
            self.deferred.pop()()
            count += 1
        return count


class Infer:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def infer(self, call: Any, body: bytes) -> None:
        if b"wrong" in body:
            raise BadRequest("it is wrong")
        if b"broken" in body:
            raise ZeroDivisionError
        assert PREFIX.unpack_from(body) == (0, len(body) - 5)
        self.calls.append(call)

    def answer(self, place: int) -> None:
        made = message("inference.ModelInferResponse")(id=str(place)).SerializeToString()
        self.calls[place].reply((made[:1], made[1:]), len(made))


def begun(most_bytes: int = 1000) -> tuple[Connection, Infer, GrpcStream]:
    connection, infer = Connection(), Infer()
    method = StreamInfer(infer, most_bytes)  # type: ignore[arg-type]
    return connection, infer, GrpcStream(connection, 1, method.begin)  # type: ignore[arg-type]


def request(id_: str = "") -> bytes:
    body = message("inference.ModelInferRequest")(model_name="m", id=id_).SerializeToString()
    return PREFIX.pack(0, len(body)) + body


def test_answers_come_in_the_order_of_the_requests_however_they_are_cut() -> None:
    data = request("a") + request("b") + request("c")
    for size in range(1, len(data) + 1):
        connection, infer, stream = begun()
        for at in range(0, len(data), size):
            stream.data(data[at : at + size], ended=False)
        assert connection.held == 0
        for place in (2, 1):
            infer.answer(place)
        assert connection.responses == []
        infer.answer(0)
        assert [each.infer_response.id for each in connection.responses] == ["0", "1", "2"]
        assert not connection.trailers
        stream.data(b"", ended=True)
        assert connection.trailers


def test_the_end_waits_for_the_last_answer() -> None:
    connection, infer, stream = begun()
    stream.data(request(), ended=True)
    assert not connection.trailers
    infer.answer(0)
    assert len(connection.responses) == 1
    assert b"grpc-status" in connection.trailers


def test_an_error_is_a_message_with_the_id_and_the_stream_goes_on() -> None:
    connection, infer, stream = begun()
    stream.data(request("wrong") + request("good"), ended=False)
    infer.calls[0].fail(ServingError("late"))
    infer.calls[0].fail(ServingError("twice"))
    stream.data(request("broken"), ended=False)
    stream.data(PREFIX.pack(0, 2) + b"\xff\xff", ended=False)
    assert [(each.error_message, each.infer_response.id) for each in connection.responses] == [
        ("it is wrong", "wrong"),
        ("late", "good"),
        ("the server failed; its log says why", "broken"),
    ]
    infer.calls[1].fail(ServingError("no message"))
    assert (connection.responses[-1].error_message, connection.responses[-1].infer_response.id) == (
        "no message",
        "",
    )
    assert not connection.trailers


def test_requests_that_are_too_many_are_refused_one_by_one() -> None:
    connection, infer, stream = begun(most_bytes=1 << 20)
    stream.data(request("x") * (stream_infer.MOST_PENDING + 2), ended=False)
    connection.turns()
    assert len(infer.calls) == stream_infer.MOST_PENDING
    assert connection.responses == []
    for place in range(stream_infer.MOST_PENDING):
        infer.answer(place)
    refused = [each for each in connection.responses if each.error_message]
    assert [each.infer_response.id for each in refused] == ["x", "x"]
    assert "1000 requests of this stream wait for their answers" in refused[0].error_message
    stream.data(request(), ended=False)
    assert len(infer.calls) == stream_infer.MOST_PENDING + 1, "there is room again"


def test_bytes_that_wait_are_bounded() -> None:
    connection, infer, stream = begun(most_bytes=100)
    stream.data(request("i" * 80) * 3, ended=False)
    assert len(infer.calls) == 2
    infer.answer(0)
    infer.answer(1)
    assert "bytes with this one; allowed: 1000 and 200" in connection.responses[2].error_message
    stream.data(request("i" * 200), ended=False)
    assert b"a message of 206 bytes; 100 are read on this stream" in connection.trailers


def test_a_request_that_does_not_become_whole_is_counted_and_ended_when_there_is_no_room() -> None:
    connection, _, stream = begun()
    connection.room = 50
    stream.data(request("i" * 80)[:40], ended=False)
    assert connection.held == 40
    assert not connection.trailers
    stream.data(request("i" * 80)[40:60], ended=False)
    assert b"grpc-status\x018" in connection.trailers
    assert b"too many requests that are not whole" in connection.trailers


def test_a_turn_reads_a_bounded_number_of_messages() -> None:
    """A frame may hold a hundred thousand empty ones."""
    connection, infer, stream = begun(most_bytes=1 << 20)
    stream.data(request("x") * 100, ended=True)
    assert len(infer.calls) == MESSAGES_IN_TURN
    assert connection.paused
    assert connection.turns() == 100 // MESSAGES_IN_TURN
    assert len(infer.calls) == 100
    assert not connection.trailers
    for place in range(100):
        infer.answer(place)
    assert b"grpc-status" in connection.trailers


def test_requests_wait_while_their_answers_lie_unread() -> None:
    connection, infer, stream = begun()
    connection.unread_bytes = streams.MOST_UNREAD + 1
    stream.data(request("a"), ended=False)
    stream.data(request("b"), ended=True)
    assert (infer.calls, connection.paused) == ([], True)
    assert connection.held == 2 * len(request("a")), "what waits counts in the budget"
    connection.unread_bytes = 0
    assert connection.when_all_is_read is not None
    connection.when_all_is_read()
    assert len(infer.calls) == 2
    assert connection.held == 0


def test_a_stream_that_ended_reads_nothing_that_has_waited() -> None:
    connection, infer, stream = begun(most_bytes=1 << 20)
    stream.data(request("x") * 100, ended=False)
    connection.trailers = b"gone"
    connection.turns()
    assert len(infer.calls) == MESSAGES_IN_TURN
