from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cloud_ml.auth import legacy
from cloud_ml.auth.legacy import EMPTY_MD5, Claim
from cloud_ml.errors import Unauthenticated

NOW = datetime.fromtimestamp(1_474_203_860, UTC)

# Observed from the original client: secret "sk", timestamp 1474203860.
VECTORS = [
    ("/cloud_ml//v1/train", EMPTY_MD5, "2RiDHGBaCYJ7nTJWkBEsqOBF2cY="),
    ("/cloud_ml/v1/train", EMPTY_MD5, "niUtnoeUliQty3xCB9n3h3LBRqQ="),
    ("/cloud_ml/v1/train", "d71c38112593133748e3488675525c8c", "DSBVceclt49OJd8GU4vvHoEcwAc="),
]


def headers(content: str = EMPTY_MD5, signature: str = VECTORS[1][2]) -> dict[str, str]:
    return {
        "X-Xiaomi-Timestamp": "1474203860",
        "X-Xiaomi-Content-MD5": content,
        "X-Xiaomi-Secret-Key-Id": "AK1",
        "Authorization": f"Galaxy V3 {signature}",
    }


def verify(
    claim: Claim, *, path: str = "/cloud_ml/v1/train", secret: str | None = "sk", offset: int = 0
) -> None:
    claim.verify(
        secret, method="GET", target=path, now=NOW + timedelta(seconds=offset), window_s=300
    )


@pytest.mark.parametrize(("path", "content", "signature"), VECTORS)
def test_signatures_of_the_original_client_are_believed(
    path: str, content: str, signature: str
) -> None:
    verify(Claim.from_headers(headers(content, signature).items()), path=path)
    verify(Claim.from_headers(headers(content, signature).items()), path=path + "?org_id=3")


@pytest.mark.parametrize(
    "path", ["/cloud_ml//v1/train", "/cloud_ml/v1/train/", "/cloud_ml/v1/%74rain"]
)
def test_another_raw_path_is_refused(path: str) -> None:
    with pytest.raises(Unauthenticated, match="Unauthorized: signature is wrong"):
        verify(Claim.from_headers(headers().items()), path=path)


@pytest.mark.parametrize("secret", ["other", None])
def test_another_secret_and_an_unknown_key_are_refused_alike(secret: str | None) -> None:
    with pytest.raises(Unauthenticated, match="Unauthorized: signature is wrong"):
        verify(Claim.from_headers(headers().items()), secret=secret)


def test_a_day_old_request_is_refused_with_the_time_of_the_server() -> None:
    with pytest.raises(Unauthenticated, match=str(1_474_203_860 + 86_400)):
        verify(Claim.from_headers(headers().items()), offset=86_400)


def test_the_body_must_be_the_signed_one() -> None:
    claim = Claim.from_headers(headers(*VECTORS[2][1:]).items())
    claim.check_body("d71c38112593133748e3488675525c8c")
    with pytest.raises(Unauthenticated, match="MD5"):
        claim.check_body(EMPTY_MD5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (legacy.DATE, "1474203860.5"),
        (legacy.DATE, "+1474203860"),
        (legacy.CONTENT, "D41D8CD98F00B204E9800998ECF8427E"),
        (legacy.CONTENT, "1B2M2Y8AsgTpgAmY7PhCfg=="),
        (legacy.KEY, "a key"),
        (legacy.AUTHORIZATION, "Galaxy V3 2RiDHGBaCYJ7nTJWkBEsqOBF2cY"),
        (legacy.AUTHORIZATION, "Galaxy V3  2RiDHGBaCYJ7nTJWkBEsqOBF2cY="),
    ],
)
def test_malformed_headers_are_named(name: str, value: str) -> None:
    with pytest.raises(Unauthenticated, match="malformed") as caught:
        Claim.from_headers({**headers(), name: value}.items())
    assert caught.value.field == name
