from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from cloud_ml.auth import fds
from cloud_ml.auth.fds import Claim
from cloud_ml.errors import Unauthenticated

NOW = datetime(2016, 9, 18, 13, 4, 20, tzinfo=UTC)
WHEN = "Sun, 18 Sep 2016 13:04:20 GMT"
MD5 = "d71c38112593133748e3488675525c8c"

# Observed from the original storage client: key "AK1", secret "sk".
VECTORS: list[tuple[str, str, dict[str, str], str]] = [
    ("HEAD", "/cloudml", {}, "FQ41653rJGwHwBhepGqmMCjzPgY="),
    ("HEAD", "/cloudml/user_packages/linear_20160918.tar.gz", {}, "uZ4mHCczw7hthlrcRqmCrD1VYNM="),
    ("PUT", "/cloudml/a%20b", {"Content-MD5": MD5}, "7/UmO7GeuGXlRabR1oCE38mZ63Y="),
    (
        "PUT",
        "/cloudml/%E6%A8%A1",
        {
            "Content-Type": "text/plain",
            "x-xiaomi-meta-b": " 2 ",
            "X-Xiaomi-Meta-A": "1",
            "x-xiaomi-empty": "",
        },
        "h/8aXrvk4c1BcFbmwv8/8lC5y0I=",
    ),
    (
        "PUT",
        "/cloudml/big?uploads=true",
        {"x-xiaomi-multipart-upload-mode": "DIRECT"},
        "Se66bsk5rOBfMF0YYpRQ/7eZGYs=",
    ),
    ("PUT", "/cloudml/big?uploadId=u1&partNumber=2&x=y", {}, "NhbsF9WlEs1NkaA6YUgpex/PMvo="),
    ("GET", "/cloudml?prefix=a&delimiter=%2F", {}, "ec1n6vp5LmiKOvIOysMenkmIm6U="),
    (
        "GET",
        "/",
        {"Date": "Mon, 01 Jan 2001 00:00:00 GMT", "x-xiaomi-date": WHEN},
        "gkx37gqjk36MH8Y8T77djyDQsxw=",
    ),
    ("GET", "/cloudml/a?acl", {}, "xBR9kmOwzEsYUGdRjUWQqr/GsPM="),
]
METHOD, TARGET, _, SIGNATURE = VECTORS[1]


def headers(extra: Mapping[str, str] | None = None, signature: str = SIGNATURE) -> dict[str, str]:
    return {"Date": WHEN, "Authorization": f"Galaxy-V2 AK1:{signature}", **(extra or {})}


def verify(
    claim: Claim,
    *,
    method: str = METHOD,
    target: str = TARGET,
    secret: str | None = "sk",
    offset: int = 0,
) -> None:
    claim.verify(
        secret, method=method, target=target, now=NOW + timedelta(seconds=offset), window_s=300
    )


@pytest.mark.parametrize(("method", "target", "extra", "signature"), VECTORS)
def test_signatures_of_the_original_client_are_believed(
    method: str, target: str, extra: dict[str, str], signature: str
) -> None:
    claim = Claim.from_headers(headers(extra, signature).items())
    assert (claim.key, claim.date) == ("AK1", str(int(NOW.timestamp())))
    verify(claim, method=method, target=target)
    when = extra.get("Date", WHEN)
    ours = fds.sign(method, target, key="AK1", secret="sk", when=when, headers=extra)
    assert ours["Authorization"] == f"Galaxy-V2 AK1:{signature}"


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", TARGET),
        ("HEAD", TARGET + "x"),
        ("HEAD", TARGET + "?acl"),
        ("HEAD", TARGET + "?uploadId=1"),
        ("HEAD", "/" + TARGET),
        ("head", TARGET),
    ],
)
def test_another_request_is_refused(method: str, target: str) -> None:
    with pytest.raises(Unauthenticated):
        verify(Claim.from_headers(headers().items()), method=method, target=target)


@pytest.mark.parametrize(
    "extra",
    [
        {"Content-MD5": MD5},
        {"Content-Type": "text/plain"},
        {"X-Xiaomi-Meta-A": "1"},
        {"Date": "Sun, 18 Sep 2016 13:04:21 GMT"},
        {"X-Xiaomi-Date": WHEN},
    ],
)
def test_a_header_that_was_not_signed_is_refused(extra: dict[str, str]) -> None:
    with pytest.raises(Unauthenticated, match="the signature is wrong"):
        verify(Claim.from_headers(headers(extra).items()))


@pytest.mark.parametrize("target", ["/cloudml/a%3Facl", "/cloudml/%FF"])
def test_a_path_that_could_be_read_in_two_ways_is_refused(target: str) -> None:
    """The text of ``/a%3Facl`` is that of ``/a?acl``: one signature would serve both."""
    claim = Claim.from_headers(headers(signature=VECTORS[8][3]).items())
    verify(claim, method="GET", target="/cloudml/a?acl")
    with pytest.raises(Unauthenticated, match="path cannot be signed"):
        verify(claim, method="GET", target=target)


@pytest.mark.parametrize("secret", ["other", None])
def test_another_secret_and_an_unknown_key_are_refused_alike(secret: str | None) -> None:
    with pytest.raises(Unauthenticated, match=r"^the signature is wrong"):
        verify(Claim.from_headers(headers().items()), secret=secret)


@pytest.mark.parametrize("offset", [-301, 301, 86_400])
def test_an_old_request_is_refused_with_the_time_of_the_server(offset: int) -> None:
    claim = Claim.from_headers(headers().items())
    verify(claim, offset=299)
    with pytest.raises(Unauthenticated, match=str(int(NOW.timestamp()) + offset)):
        verify(claim, offset=offset)


def test_a_body_counts_when_its_md5_was_signed() -> None:
    Claim.from_headers(headers().items()).check_body(MD5)
    signed = Claim.from_headers(headers({"Content-MD5": MD5}).items())
    signed.check_body(MD5)
    with pytest.raises(Unauthenticated, match="MD5"):
        signed.check_body("d41d8cd98f00b204e9800998ecf8427e")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Authorization", f"Galaxy-V2 AK1:{SIGNATURE[:-1]}"),
        ("Authorization", f"Galaxy-V2  AK1:{SIGNATURE}"),
        ("Authorization", f"Galaxy-V2 a key:{SIGNATURE}"),
        ("Date", "2016-09-18T13:04:20Z"),
        ("Date", "Sun, 18 Sep 2016 13:04:20 +0000"),
        ("Date", "Sun, 32 Sep 2016 13:04:20 GMT"),
        ("Date", "Sun, 18 Xyz 2016 13:04:20 GMT"),
        ("X-Xiaomi-Date", ""),
        ("Content-MD5", MD5.upper()),
        ("Content-Type", "text/plain\nx"),
        ("X-Xiaomi-Meta-A", "模"),
    ],
)
def test_malformed_headers_are_named(name: str, value: str) -> None:
    with pytest.raises(Unauthenticated, match="malformed") as caught:
        Claim.from_headers({**headers(), name: value}.items())
    assert str(caught.value.field).lower() == name.lower()


@pytest.mark.parametrize("name", ["Authorization", "Date"])
def test_a_header_that_is_missing_is_named(name: str) -> None:
    sent = headers()
    del sent[name]
    with pytest.raises(Unauthenticated, match="missing") as caught:
        Claim.from_headers(sent.items())
    assert caught.value.field == name


@pytest.mark.parametrize("name", ["authorization", "DATE", "x-xiaomi-meta-a", "content-type"])
def test_a_header_given_twice_is_refused(name: str) -> None:
    pairs = [*headers({"Content-Type": "a/b", "X-Xiaomi-Meta-A": "1"}).items(), (name, WHEN)]
    with pytest.raises(Unauthenticated, match="twice"):
        Claim.from_headers(pairs)


def test_a_mutation_is_known_by_its_key_and_signature() -> None:
    claim = Claim.from_headers(headers().items())
    same = Claim.from_headers(headers().items())
    other = Claim.from_headers(headers(signature=VECTORS[0][3]).items())
    assert (
        claim.once_token("PUT", "/a?x=1")
        == same.once_token("PUT", "/a?x=2")
        != other.once_token("PUT", "/a?x=1")
    )
    assert SIGNATURE not in claim.once_token("PUT", "/a")
