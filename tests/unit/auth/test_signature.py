from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cloud_ml.auth import signature
from cloud_ml.auth.signature import Claim, canonical_query, content_sha256, sign
from cloud_ml.errors import InvalidRequest, Unauthenticated

NOW = datetime.fromtimestamp(1_474_203_860, UTC)
TARGET = "/api/v1/train_jobs?limit=5&after=9"


def signed(method: str = "POST", target: str = TARGET, **changes: str) -> dict[str, str]:
    return sign(method, target, key="AK1", secret="sk", now=NOW, **changes)  # type: ignore[arg-type]


def verify(
    headers: dict[str, str],
    *,
    secret: str | None = "sk",
    method: str = "POST",
    target: str = TARGET,
    now: datetime = NOW,
) -> None:
    Claim.from_headers(headers.items()).verify(
        secret, method=method, target=target, now=now, window_s=300
    )


def test_a_signed_request_is_believed() -> None:
    verify(signed())


def test_the_order_of_parameters_on_the_way_does_not_matter() -> None:
    verify(signed(), target="/api/v1/train_jobs?after=9&limit=5")


@pytest.mark.parametrize(
    "change",
    [
        {"method": "DELETE"},
        {"target": "/api/v1/train_jobs"},
        {"target": "/api/v1/train_jobs?limit=5&after=8"},
        {"target": "/api/v1/train_jobs?limit=5&after=9&x=1"},
        {"target": "/api//v1/train_jobs?limit=5&after=9"},
        {"target": "/api/v1/train%5Fjobs?limit=5&after=9"},
        {"secret": "SK"},
        {"secret": None},
    ],
)
def test_any_other_request_is_refused(change: dict[str, str]) -> None:
    with pytest.raises(Unauthenticated, match="signature is wrong"):
        verify(signed(), **change)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [signature.DATE, signature.NONCE, signature.CONTENT])
def test_no_signed_header_can_be_exchanged(name: str) -> None:
    other = signed(nonce="another-nonce-0123", content=content_sha256(b"x"))
    headers = (
        {**signed(), signature.DATE: "1474203861"}
        if name == signature.DATE
        else {**signed(), name: other[name]}
    )
    with pytest.raises(Unauthenticated, match="signature is wrong"):
        verify(headers)


def test_unknown_key_and_wrong_secret_read_the_same() -> None:
    answers = []
    for secret in (None, "wrong"):
        with pytest.raises(Unauthenticated) as caught:
            verify(signed(), secret=secret)
        answers.append(caught.value.document())
    assert answers[0] == answers[1]


@pytest.mark.parametrize("offset", [-300, 300])
def test_the_edge_of_the_window_is_inside(offset: int) -> None:
    verify(signed(), now=NOW + timedelta(seconds=offset))


@pytest.mark.parametrize(
    ("offset", "words"), [(301, "301 s behind"), (-301, "301 s ahead of"), (86_400, "86400 s")]
)
def test_skew_is_refused_with_the_time_of_the_server(offset: int, words: str) -> None:
    with pytest.raises(Unauthenticated, match=words) as caught:
        verify(signed(), now=NOW + timedelta(seconds=offset))
    assert str(1_474_203_860 + offset) in caught.value.message
    assert caught.value.field == signature.DATE


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (signature.KEY, ""),
        (signature.KEY, "a/b"),
        (signature.KEY, "a" * 129),
        (signature.DATE, "-5"),
        (signature.DATE, "1474203860 "),
        (signature.DATE, "1474203860\n"),
        (signature.DATE, "١٤٧٤"),
        (signature.DATE, "1e9"),
        (signature.DATE, "1" * 13),
        (signature.NONCE, "short"),
        (signature.NONCE, "n" * 65),
        (signature.NONCE, "0123456789abcde\n"),
        (signature.CONTENT, "E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855"),
        (signature.CONTENT, "unsigned-payload"),
        (signature.AUTHORIZATION, "CLOUDML1-HMAC-SHA256 " + "0" * 63),
        (signature.AUTHORIZATION, "CLOUDML1-HMAC-SHA256  " + "0" * 64),
    ],
)
def test_malformed_headers_are_named_and_not_repeated(name: str, value: str) -> None:
    with pytest.raises(Unauthenticated, match="malformed") as caught:
        Claim.from_headers({**signed(), name: value}.items())
    assert caught.value.field == name
    assert caught.value.value is None


@pytest.mark.parametrize("name", list(signed()))
def test_each_header_stands_exactly_once_in_any_case(name: str) -> None:
    headers = signed()
    Claim.from_headers((key.upper(), value) for key, value in headers.items())
    with pytest.raises(Unauthenticated, match=f"{name} is missing"):
        Claim.from_headers((key, value) for key, value in headers.items() if key != name)
    with pytest.raises(Unauthenticated, match=f"{name} was given twice"):
        Claim.from_headers([*headers.items(), (name.lower(), headers[name])])


def test_the_body_must_be_the_signed_one() -> None:
    claim = Claim.from_headers(signed(content=content_sha256(b"{}")).items())
    claim.check_body(content_sha256(b"{}"))
    with pytest.raises(Unauthenticated, match="digest"):
        claim.check_body(content_sha256(b"{} "))


def test_an_unsigned_payload_is_checked_elsewhere() -> None:
    claim = Claim.from_headers(signed(content=signature.UNSIGNED_PAYLOAD).items())
    claim.check_body(content_sha256(b"anything"))
    assert not claim.bodyless


def test_a_nonce_is_fresh_every_time() -> None:
    assert len({signed()[signature.NONCE] for _ in range(100)}) == 100


@pytest.mark.parametrize(
    ("raw", "canonical"),
    [
        ("", ""),
        ("b=1&a=2", "a=2&b=1"),
        ("a=&a", "a&a="),
        ("a-b=1&a=2", "a=2&a-b=1"),
        ("a=10&a=2", "a=10&a=2"),
        ("a=b=c&a=b", "a=b&a=b=c"),
        ("q=a+b&q=a%20b&q=a%2Bb", "q=a%20b&q=a%2Bb&q=a+b"),
        ("x=%2f&x=%2F", "x=%2F&x=%2f"),
        ("x=1&&", "&&x=1"),
        ("=v&a", "=v&a"),
        ("a?b=/", "a?b=/"),
    ],
)
def test_the_canonical_query(raw: str, canonical: str) -> None:
    assert canonical_query(raw) == canonical
    assert canonical_query(canonical) == canonical


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("method", {"method": "post"}),
        ("target", {"target": "api/v1"}),
        ("target", {"target": "/a b"}),
        ("target", {"target": "/a#b"}),
        ("target", {"target": "/é"}),
        ("target", {"target": "/a\nGET"}),
        (signature.CONTENT, {"content": "abc"}),
        (signature.NONCE, {"nonce": "short"}),
    ],
)
def test_what_cannot_be_signed_is_refused_before_it_is_sent(
    field: str, arguments: dict[str, str]
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        signed(**arguments)
    assert caught.value.field == field


@pytest.mark.parametrize("line", [("POST", "http://host/a"), ("POST", "/ä"), ("post", "/a")])
def test_a_request_line_that_nobody_can_have_signed_is_refused(line: tuple[str, str]) -> None:
    with pytest.raises(Unauthenticated, match="request line"):
        verify(signed(), method=line[0], target=line[1])
