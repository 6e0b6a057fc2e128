from __future__ import annotations

import pytest

from cloud_ml.net.http1.chunks import Chunks
from cloud_ml.net.http1.heads import HeadFault

WHOLE = b'5\r\nhello\r\nA;name="v"\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n'
LINES = 10_000


@pytest.mark.parametrize("step", [1, 2, 3, 7, len(WHOLE)])
def test_a_body_in_chunks_however_it_is_cut(step: int) -> None:
    chunks, rest = Chunks(100), None
    for at in range(0, len(WHOLE), step):
        assert rest is None
        rest = chunks.feed(WHOLE[at : at + step], LINES)
    assert (b"".join(chunks.parts), rest) == (b"hello0123456789", b"")


def test_what_follows_is_given_back() -> None:
    assert Chunks(100).feed(b"0\r\n\r\nGET / HTTP/1.1", LINES) == b"GET / HTTP/1.1"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\r\n", 400),
        (b"x\r\n", 400),
        (b"0x5\r\nhello\r\n", 400),
        (b"+5\r\nhello\r\n", 400),
        (b"-5\r\nhello\r\n", 400),
        (b" 5\r\nhello\r\n", 400),
        (b"5 x\r\nhello\r\n", 400),
        (b"5;a\nb\r\nhello\r\n", 400),
        (b"5\nhello\r\n", 400),
        (b"5\r\nhello!\r\n", 400),
        (b"5\r\nhello\n\n", 400),
        (b"5\r\nhello\r\r", 400),
        (b"1" * 16 + b"\r\n", 400),
        (b"65\r\n", 413),
        (b"64\r\n" + b"a" * 100 + b"\r\n1\r\n", 413),
        (b"5;" + b"a" * 5000, 400),
        (b"0\r\nno field\r\n\r\n", 400),
        (b"0\r\n" + b"a: b\r\n" * 2000, 400),
    ],
)
def test_what_is_refused(data: bytes, status: int) -> None:
    with pytest.raises(HeadFault) as caught:
        Chunks(100).feed(data + (b"" if data.endswith(b"a") else b"\r\n"), LINES)
    assert caught.value.status == status


def test_chunks_that_are_mostly_talk_are_refused() -> None:
    chunks = Chunks(1 << 30)
    with pytest.raises(HeadFault, match="smaller than what is said"):
        for _ in range(1000):
            chunks.feed(b"1;" + b"a" * 4000 + b"\r\nx\r\n", LINES)


@pytest.mark.parametrize("most_lines", [1, 2, 3])
def test_lines_beyond_what_a_turn_allows_wait(most_lines: int) -> None:
    chunks, turns, data = Chunks(100), 0, WHOLE + b"GET"
    while (rest := chunks.feed(data, most_lines)) is None:
        assert chunks.behind
        assert chunks.lines == most_lines
        data, turns = b"", turns + 1
    assert not chunks.behind
    assert (b"".join(chunks.parts), rest, turns) == (
        b"hello0123456789",
        b"GET",
        (5 - 1) // most_lines,
    )
