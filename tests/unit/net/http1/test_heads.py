from __future__ import annotations

import pytest

from cloud_ml.net.http1.heads import CHUNKED, LONGEST, Head, HeadFault, Heads, read_head


def head(*lines: str, first: str = "POST /a HTTP/1.1", host: str = "host: h") -> bytes:
    return "\r\n".join([first, *([host] if host else []), *lines, "", ""]).encode("latin-1")


def test_what_a_head_says() -> None:
    read = read_head(head("Content-Length: 12", "X-A:  b c \t", "x-a: d"))
    assert (read.method, read.target, read.length, read.close) == ("POST", "/a", 12, False)
    assert read.fields["x-a"] == "b c, d"
    assert read_head(head("Transfer-Encoding: Chunked")).length == CHUNKED
    assert read_head(head("Expect: 100-Continue")).expects
    assert read_head(head(first="GET http://other/x?y HTTP/1.1")).target == "/x?y"
    assert read_head(head(first="GET http://other HTTP/1.1")).target == "/"
    assert read_head(head(first="GET http://other:80?y HTTP/1.1")).target == "/?y"
    assert read_head(head(first="GET HTTPS://[::1]:80/x HTTP/1.1")).target == "/x"
    assert read_head(head(first="OPTIONS * HTTP/1.1")).target == "*"
    assert read_head(head(first="OPTIONS http://other HTTP/1.1")).target == "*"


@pytest.mark.parametrize("host", ["h", "h:8501", "[::1]:80", "127.0.0.1", "", "a_b.example:"])
def test_a_host_that_is_one(host: str) -> None:
    assert read_head(head(host=f"Host: {host}")).fields["host"] == host


@pytest.mark.parametrize("minor", "123456789")
def test_a_later_minor_version_is_read_as_1_1(minor: str) -> None:
    """RFC 9110, section 2.5."""
    read = read_head(head(first=f"GET / HTTP/1.{minor}"))
    assert (read.old, read.close) == (False, False)


@pytest.mark.parametrize(
    ("first", "connection", "close"),
    [
        ("GET / HTTP/1.1", "", False),
        ("GET / HTTP/1.1", "Connection: foo, Close", True),
        ("GET / HTTP/1.1", "Connection: keep-alive, close", True),
        ("GET / HTTP/1.0", "", True),
        ("GET / HTTP/1.0", "Connection: Keep-Alive", False),
    ],
)
def test_whether_the_connection_stays(first: str, connection: str, close: bool) -> None:
    assert read_head(head(*([connection] if connection else []), first=first)).close is close


@pytest.mark.parametrize(
    ("offers", "taken"),
    [("gzip, deflate", "gzip"), ("deflate", "deflate"), ("br", ""), ("gzip;q=0, "
                                                                     "deflate;q=0.5", "deflate"),
     ("gzip; q=0.0", ""), ("GZIP;q=1.0", "gzip")],
)  # fmt: skip
def test_how_the_answer_may_be_packed(offers: str, taken: str) -> None:
    assert read_head(head(f"Accept-Encoding: {offers}")).accepts == taken


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (head(first="POST /a"), 400),
        (head(first="POST  /a HTTP/1.1"), 400),
        (head(first="POST /a b HTTP/1.1"), 400),
        (head(first="POST /a HTTP/1.1 "), 400),
        (head(first="POST /a HTTP/2.0"), 505),
        (head(first="POST /a HTTP/0.9"), 505),
        (head(first="POST /a HTTP/1.10"), 400),
        (head(first="POST /a HTTP/1"), 400),
        (head(first="POST /a http/1.1"), 400),
        (head(first="PO(ST /a HTTP/1.1"), 400),
        (head(first="POST a HTTP/1.1"), 400),
        (head(first="POST /\x00 HTTP/1.1"), 400),
        (head(first="POST /\xe9 HTTP/1.1"), 400),
        (head(first="GET * HTTP/1.1"), 400),
        (head(first="OPTIONS ** HTTP/1.1"), 400),
        (head(first="GET http:///x HTTP/1.1"), 400),
        (head(first="GET http://user@h/x HTTP/1.1"), 400),
        (head(first="GET http://h/x#y HTTP/1.1"), 400),
        (head(first="GET ftp://h/x HTTP/1.1"), 400),
        (head(first="CONNECT h:80 HTTP/1.1"), 400),
        (head(host=""), 400),
        (head(host="", first="GET http://h/ HTTP/1.1"), 400),
        (head("Host: h", first="GET http://h/ HTTP/1.1"), 400),
        (head("Host: h", first="GET / HTTP/1.0"), 400),
        (head(host="Host: a b"), 400),
        (head(host="Host: a/b"), 400),
        (head(host="Host: user@a"), 400),
        (head(host="Host: a:80:80"), 400),
        (head(host="Host: a, b"), 400),
        (head(host="Host: \xe9"), 400),
        (head("Host: other"), 400),
        (head(" folded: x"), 400),
        (head("a: b", "\tfolded"), 400),
        (head("name : x"), 400),
        (head("na me: x"), 400),
        (head(": x"), 400),
        (head("no colon"), 400),
        (head("a: b\x00"), 400),
        (head("a: b\rc: d"), 400),
        (head("a: b\nContent-Length: 3"), 400),
        (head("Content-Length: 3", "Content-Length: 3"), 400),
        (head("Content-Length: 3, 3"), 400),
        (head("Content-Length: +3"), 400),
        (head("Content-Length: -3"), 400),
        (head("Content-Length: 0x3"), 400),
        (head("Content-Length: 3_0"), 400),
        (head("Content-Length: \xb2"), 400),
        (head("Content-Length:"), 400),
        (head("Content-Length: 1234567890123456789"), 400),
        (head("Content-Length: 3", "Transfer-Encoding: chunked"), 400),
        (head("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), 400),
        (head("Transfer-Encoding: gzip, chunked"), 501),
        (head("Transfer-Encoding: chunked, identity"), 501),
        (head("Transfer-Encoding:\x0bchunked"), 400),
        (head("Transfer-Encoding: xchunked"), 501),
        (head("Transfer-Encoding: chunked", first="POST / HTTP/1.0"), 400),
        (head("Expect: something"), 417),
        (head("Content-Encoding: br"), 415),
        (head(*[f"a{n}: b" for n in range(100)]), 431),
    ],
)
def test_what_is_refused(data: bytes, status: int) -> None:
    with pytest.raises(HeadFault) as caught:
        read_head(data)
    assert caught.value.status == status


def test_a_head_is_understood_once_whatever_the_length_of_its_body() -> None:
    seen: list[Head] = []
    heads = Heads(lambda each: seen.append(each) or each.target)  # type: ignore[func-returns-value]
    for length in (5, 50, 500, 5):
        _, meaning, read_length = heads.read(head(f"Content-Length: {length}"))
        assert (meaning, read_length) == ("/a", length)
    assert len(seen) == 1
    assert heads.read(head("Content-Length: 7", first="POST /b HTTP/1.1"))[1:] == ("/b", 7)
    assert heads.read(head())[2] == 0
    assert len(seen) == 3


def test_a_length_that_is_written_elsewhere_is_not_taken_for_the_body_s() -> None:
    heads = Heads(lambda each: each.target)
    for _ in range(3):
        assert heads.read(head("X: ontent-Length: 99", "Content-Length: 4"))[2] == 4
        assert heads.read(head("X-Content-Length: 98"))[2] == 0
        assert heads.read(head("X-Content-Length: 97", "content-length: 5"))[2] == 5
    for wrong in ("", "9999999999999999999", "4 4", "+4", "4\x00"):
        with pytest.raises(HeadFault):
            heads.read(head(f"Content-Length: {wrong}"))


@pytest.mark.parametrize(
    "line",
    [
        "X-Content-Length: {}",
        "x-content-length: {}",
        "X: Content-Length: {}",
        "X: ontent-Length: {}",
        "X:\tContent-Length: {}",
        "Inference-Header-Content-Length: {}",
    ],
)
@pytest.mark.parametrize(
    "body", ["", "Content-Length: 4", "content-length:4", "Content-Length:  4"]
)
def test_a_repeated_head_takes_its_length_from_no_other_line(line: str, body: str) -> None:
    """Request smuggling: the second head took the length of its body from the line before."""
    heads = Heads(lambda each: dict(each.fields))
    for number in (7, 33, 4, 7):
        data = head(line.format(number), *([body] if body else []))
        result, read = heads.read(data), read_head(data)
        assert result[2] == read.length
        assert {**result[1], "content-length": ""} == {**read.fields, "content-length": ""}


def test_a_length_without_digits_is_refused_also_after_a_head_that_lost_its_digits() -> None:
    heads = Heads(lambda each: each.target)
    heads.read(head("Content-Length: 5"))
    for wrong in ("Content-Length: ", "Content-Length:", "content-length: "):
        with pytest.raises(HeadFault):
            heads.read(head(wrong))
    assert heads.read(head("Content-Length: 6"))[2] == 6


def test_what_a_head_means_cannot_depend_on_digits_that_are_not_compared() -> None:
    heads = Heads(lambda each: each.fields.get("content-length"))
    assert [heads.read(head(f"Content-Length: {size}"))[1:] for size in (5, 6)] == [
        (None, 5),
        (None, 6),
    ]


def test_long_heads_are_read_and_not_kept() -> None:
    seen: list[str] = []
    heads = Heads(lambda each: seen.append(each.target))
    for _ in range(3):
        heads.read(head(f"a: {'x' * LONGEST}", "Content-Length: 5"))
        heads.read(head(f"a: {'x' * LONGEST}"))
    assert len(seen) == 6
