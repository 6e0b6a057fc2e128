from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cloud_ml.auth import claims, legacy, signature
from cloud_ml.errors import Unauthenticated

NOW = datetime.fromtimestamp(1_474_203_860, UTC)
MODERN = signature.sign("DELETE", "/x", key="AK1", secret="sk", now=NOW)
LEGACY = {
    legacy.DATE: "1474203860",
    legacy.CONTENT: legacy.EMPTY_MD5,
    legacy.KEY: "AK1",
    "Authorization": "Galaxy V3 niUtnoeUliQty3xCB9n3h3LBRqQ=",
}
LEGACY_WITH_BODY = {**LEGACY, legacy.CONTENT: "d71c38112593133748e3488675525c8c"}


def test_the_scheme_is_told_by_the_authorization() -> None:
    assert claims.read(MODERN.items()).scheme == signature.SCHEME
    assert claims.read(LEGACY.items()).scheme == legacy.SCHEME


@pytest.mark.parametrize("sent", [None, "", "Bearer abc", "galaxy v3 x", "CLOUDML1-HMAC-SHA256"])
def test_other_schemes_and_none_are_refused_with_what_is_known(sent: str | None) -> None:
    headers = [] if sent is None else [("authorization", sent)]
    with pytest.raises(Unauthenticated) as caught:
        claims.read(headers)
    assert caught.value.allowed == "CLOUDML1-HMAC-SHA256, Bearer (an access token) or Galaxy V3"


def test_two_authorizations_are_refused() -> None:
    with pytest.raises(Unauthenticated, match="twice"):
        claims.read([*MODERN.items(), ("authorization", LEGACY["Authorization"])])


@pytest.mark.parametrize(
    ("headers", "mutation", "expected"),
    [
        (MODERN, True, 300),
        (MODERN, False, 300),
        (LEGACY, False, 300),
        (LEGACY, True, 10),
        (LEGACY_WITH_BODY, True, 300),
    ],
)
def test_only_a_legacy_mutation_without_a_body_must_be_fresh(
    headers: dict[str, str], mutation: bool, expected: int
) -> None:
    claim = claims.read(headers.items())
    assert claims.window_s(claim, mutation=mutation, normal_s=300, bodyless_legacy_s=10) == expected


def test_the_short_window_never_widens_the_normal_one() -> None:
    assert (
        claims.window_s(
            claims.read(LEGACY.items()), mutation=True, normal_s=5, bodyless_legacy_s=10
        )
        == 5
    )


def test_a_modern_token_is_the_nonce_of_a_key() -> None:
    claim = claims.read(MODERN.items())
    other_key = claims.read({**MODERN, signature.KEY: "AK2"}.items())
    other_nonce = claims.read({**MODERN, signature.NONCE: "0123456789abcdef"}.items())
    tokens = [c.once_token("DELETE", "/x") for c in (claim, other_key, other_nonce)]
    assert len(set(tokens)) == 3
    assert claim.once_token("DELETE", "/x") == claim.once_token("GET", "/y")


def test_a_legacy_token_is_the_same_for_a_replay_with_another_query() -> None:
    claim = claims.read(LEGACY.items())
    token = claim.once_token("DELETE", "/cloud_ml/v1/train/a")
    assert token == claim.once_token("DELETE", "/cloud_ml/v1/train/a?x=1")
    assert token != claim.once_token("POST", "/cloud_ml/v1/train/a")
    assert token != claim.once_token("DELETE", "/cloud_ml/v1/train/b")
    assert LEGACY["Authorization"].split()[-1] not in token


def test_a_token_outlives_every_window_of_its_request() -> None:
    claim = claims.read(MODERN.items())
    last = claims.forget_at(claim, 300)
    with pytest.raises(Unauthenticated, match="behind"):
        claim.verify("sk", method="DELETE", target="/x", now=last, window_s=300)


def test_a_request_without_credentials_is_told_how_to_get_some() -> None:
    with pytest.raises(Unauthenticated, match="the request is not signed") as refused:
        claims.read([])
    assert "cloudml token create" in str(refused.value.hint)
    assert "Authorization: Bearer" in str(refused.value.hint)
