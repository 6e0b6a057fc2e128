"""One request over HTTP/2 and its answer, without a socket."""

from __future__ import annotations

import pytest

from cloud_ml.net.client.errors import AnswerTooLarge, CallLost, NotHttp
from cloud_ml.net.client.header_blocks import HeaderBlocks, encode_block
from cloud_ml.net.client.unary_call import UnaryCall
from cloud_ml.net.http2 import frames
from cloud_ml.net.http2.frames import frame

HEAD = frame(frames.HEADERS, frames.END_HEADERS, 1, encode_block([(":status", "200")]))
TRAILERS = frame(
    frames.HEADERS,
    frames.END_HEADERS | frames.END_STREAM,
    1,
    encode_block([("grpc-status", "0")]),
)


def call_of(body: bytes = b"question", most_bytes: int = 1000) -> UnaryCall:
    return UnaryCall([(":method", "POST"), (":path", "/s/m")], body, most_bytes=most_bytes)


def sent_frames(content: bytes) -> list[tuple[int, int, int, bytes]]:
    """Kind, flags, stream and payload of each."""
    found = []
    while content:
        high, low, kind, flags, stream = frames.HEAD.unpack_from(content)
        end = frames.HEAD.size + (high << 8 | low)
        found.append((kind, flags, stream, content[frames.HEAD.size : end]))
        content = content[end:]
    return found


def data_in(content: bytes) -> bytes:
    return b"".join(one[3] for one in sent_frames(content) if one[0] == frames.DATA)


def test_a_call_begins_with_the_connection() -> None:
    first = call_of().begin()
    assert first.startswith(frames.PREFACE)
    settings, window, head, data = sent_frames(first.removeprefix(frames.PREFACE))
    assert (settings[0], window[0]) == (frames.SETTINGS, frames.WINDOW_UPDATE)
    assert HeaderBlocks().read(head[3]) == {":method": "POST", ":path": "/s/m"}
    assert data == (frames.DATA, frames.END_STREAM, 1, b"question")


@pytest.mark.parametrize("size", [1, 3, 10_000])
def test_an_answer_is_read_however_it_arrives(size: int) -> None:
    whole = HEAD + frame(frames.DATA, 0, 1, b"ans") + frame(frames.DATA, 0, 1, b"wer") + TRAILERS
    call = call_of()
    call.begin()
    for place in range(0, len(whole), size):
        assert not call.over
        call.receive(whole[place : place + size])
    assert call.over
    assert (bytes(call.answer), call.fields) == (b"answer", {":status": "200", "grpc-status": "0"})


def test_a_body_goes_out_as_far_as_the_windows_allow() -> None:
    body = bytes(range(256)) * 1000
    call = call_of(body)
    sent = data_in(call.begin().removeprefix(frames.PREFACE))
    assert len(sent) == frames.DEFAULT_WINDOW
    assert data_in(call.receive(frames.window_update(1, 100_000))) == b"", (
        "the connection's is used up"
    )
    more = call.receive(frames.window_update(0, 1_000_000))
    assert all(len(one[3]) <= frames.DEFAULT_FRAME for one in sent_frames(more))
    sent += data_in(more)
    assert len(sent) == frames.DEFAULT_WINDOW + 100_000
    larger = call.receive(
        frames.settings({frames.INITIAL_WINDOW_SIZE: 200_000, frames.MAX_FRAME_SIZE: 100_000})
    )
    sent += data_in(larger)
    assert sent == body
    assert sent_frames(larger)[0][:3] == (frames.SETTINGS, frames.ACK, 0)
    assert sent_frames(larger)[-1][1] == frames.END_STREAM


def test_nothing_is_sent_behind_an_early_answer() -> None:
    call = call_of(bytes(200_000))
    call.begin()
    assert call.receive(HEAD + TRAILERS + frames.window_update(0, 1_000_000)) == b""
    assert call.over


def test_a_ping_is_answered() -> None:
    call = call_of()
    call.begin()
    pong = call.receive(frame(frames.PING, 0, 0, b"12345678"))
    assert sent_frames(pong) == [(frames.PING, frames.ACK, 0, b"12345678")]


@pytest.mark.parametrize(
    ("arrived", "error"),
    [
        (frames.reset(1, frames.CANCEL), CallLost),
        (frames.goaway(0, frames.NO_ERROR), CallLost),
        (HEAD + frame(frames.DATA, 0, 1, bytes(1001)), AnswerTooLarge),
        (frame(frames.DATA, frames.PADDED, 1, b"\x09ab"), NotHttp),
        (frame(frames.HEADERS, frames.END_HEADERS, 1, b"\x80"), NotHttp),
        (frame(frames.HEADERS, 0, 1, b"") + 5 * frame(frames.CONTINUATION, 0, 1, bytes(16_000)),
         NotHttp),
        (33 * HEAD, NotHttp),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", NotHttp),
    ],
)  # fmt: skip
def test_what_is_no_answer_is_told(arrived: bytes, error: type[Exception]) -> None:
    call = call_of()
    call.begin()
    with pytest.raises(error):
        call.receive(arrived)


def test_a_server_that_leaves_behind_the_call_still_answers() -> None:
    call = call_of()
    call.begin()
    call.receive(frames.goaway(1, frames.NO_ERROR) + HEAD + TRAILERS)
    assert call.over
