"""Every byte that is signed counts: whichever one is changed on the way, the request is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from cloud_ml.auth import claims, fds, legacy, presigned, signature
from cloud_ml.errors import Unauthenticated

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
SECONDS = int(NOW.timestamp())
KEY, SECRET = "AKtenant-1", "the secret"
TARGET = "/api/v1/storage/bucket/a%20b?part=1&upload=x%2Fy"
BODY = "a" * 64

Sent = dict[str, str]
"""Method, target and headers, by name."""


def modern() -> Sent:
    headers = signature.sign(
        "PUT", TARGET, key=KEY, secret=SECRET, now=NOW, content=BODY, nonce="n0nce-" * 4
    )
    return {"method": "PUT", "target": TARGET, **headers}


def original() -> Sent:
    path, digest = "/cloud_ml/v1/train", "0123456789abcdef" * 2
    signed = legacy.signature(path, str(SECONDS), digest, SECRET)
    return {
        "target": path, legacy.KEY: KEY, legacy.DATE: str(SECONDS), legacy.CONTENT: digest,
        legacy.AUTHORIZATION: f"{legacy.SCHEME} {signed}",
    }  # fmt: skip


def storage() -> Sent:
    target = "/bucket/a%20b?partNumber=2&uploadId=x"
    more = {
        "Content-MD5": "0123456789abcdef" * 2,
        "Content-Type": "text/plain",
        "X-Xiaomi-Meta": "value",
    }
    headers = fds.sign(
        "PUT", target, key=KEY, secret=SECRET, when="Sat, 31 Jan 2026 12:00:00 GMT", headers=more
    )
    return {"method": "PUT", "target": target, **headers}


def link() -> Sent:
    return {
        "method": "GET",
        "target": presigned.sign(
            "GET", "/api/v1/storage/b/a%20b", key=KEY, secret=SECRET, expires=SECONDS + 60
        ),
    }


def accept(sent: Sent) -> None:
    """As the server does it: read the claim, look the key up, verify, compare the body's digest."""
    headers = [(name, value) for name, value in sent.items() if name not in ("method", "target")]
    method, target = sent.get("method", "POST"), sent["target"]
    claim: claims.Claim
    if not headers:
        claim = presigned.Claim.from_query(target.partition("?")[2], longest_s=3600)
    elif any(value.startswith(fds.SCHEME) for _, value in headers):
        claim = fds.Claim.from_headers(headers)
    else:
        claim = claims.read(headers)
    secret = SECRET if claim.key == KEY else "another tenant's"
    claim.verify(secret, method=method, target=target, now=NOW, window_s=1e9)


def changed(text: str) -> Iterator[str]:
    """The text with one byte replaced, left out or doubled, everywhere; and with cases and zeros
    changed.
    """
    for at, char in enumerate(text):
        for other in {chr(ord(char) ^ 1), char.swapcase(), "0", "%"} - {char}:
            yield text[:at] + other + text[at + 1 :]
        if text[:at] + text[at + 1 :] != text:
            yield text[:at] + text[at + 1 :]
        yield text[: at + 1] + char + text[at + 1 :]


@pytest.mark.parametrize("make", [modern, original, storage, link], ids=lambda make: make.__name__)
def test_no_byte_can_be_changed(make: Callable[[], Sent]) -> None:
    sent = make()
    accept(sent)
    count = 0
    for name, value in sent.items():
        for other in changed(value):
            if name == "target" and make is storage and fds.resource(other) == fds.resource(value):
                # 'a%20b' and 'a b' are the same path, and what the query adds to sub-resources is
                # unsigned
                continue
            with pytest.raises(Unauthenticated):
                accept({**sent, name: other})
            count += 1
    assert count > 500


@pytest.mark.parametrize("make", [modern, original, storage], ids=lambda make: make.__name__)
def test_no_header_can_be_left_out_doubled_or_taken_from_another_request(
    make: Callable[[], Sent],
) -> None:
    sent = make()
    for name in sent:
        if name in ("method", "target"):
            continue
        with pytest.raises(Unauthenticated):
            accept({one: value for one, value in sent.items() if one != name})
        with pytest.raises(Unauthenticated):
            accept({**sent, name.upper() + "": sent[name], name.lower(): sent[name]})


def test_a_signature_of_one_scheme_is_none_of_another() -> None:
    everything = {**modern(), **original(), **storage(), "method": "PUT"}
    for scheme in (modern, original, storage):
        with pytest.raises(Unauthenticated):
            accept(
                {**everything, "target": scheme()["target"], "Authorization": f"{link()['target']}"}
            )
