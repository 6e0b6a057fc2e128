"""``cloudml token``: what is asked, what is printed where, and that a token's text never travels
in an address.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from cloud_ml.models.admin.access_tokens import AccessToken, CreatedAccessToken
from cloud_ml.sdk.admin.access_tokens import AccessTokens

if TYPE_CHECKING:
    from unit.cli.conftest import Run

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
TEXT = "cloudml_tkabcdefghjkmnpq_" + "s" * 43
YEAR_S = 365 * 86_400


def token(scopes: Sequence[str] = ("jobs:read",)) -> AccessToken:
    return AccessToken(
        id="tkabcdefghjkmnpq",
        org="default",
        user="mei",
        access_key="AK",
        scopes=list(scopes),
        state="usable",
        created_at=NOW,
        expires_at=NOW,
    )


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """What the server is asked for."""
    calls: list[tuple[object, ...]] = []

    def create(
        _: AccessTokens, scopes: Sequence[str], *, expires_in_s: int, note: str = ""
    ) -> CreatedAccessToken:
        calls.append((list(scopes), expires_in_s, note))
        return CreatedAccessToken(info=token(scopes), token=TEXT)

    def revoke(_: AccessTokens, name: str) -> AccessToken:
        calls.append((name,))
        return token()

    monkeypatch.setattr(AccessTokens, "create", create)
    monkeypatch.setattr(AccessTokens, "revoke", revoke)
    return calls


def test_the_text_alone_is_on_standard_output(run: Run, made: list[tuple[object, ...]]) -> None:
    done = run(
        "token",
        "create",
        "--scope",
        "jobs:read, models:predict",
        "--scope",
        "keys:write",
        "--note",
        "ci",
    )
    assert done.stdout == f"{TEXT}\n"
    assert made == [(["jobs:read", "models:predict", "keys:write"], 30 * 86_400, "ci")]
    assert "cloudml token revoke tkabcdefghjkmnpq" in done.stderr
    assert "keys:write lets its holder create other credentials" in done.stderr


@pytest.mark.parametrize(("lasting", "asks"), [("364d", False), ("365d", True), ("9000d", True)])
def test_a_year_is_asked_about(
    run: Run, made: list[tuple[object, ...]], lasting: str, asks: bool
) -> None:
    refused = run("token", "create", "--scope", "jobs:read", "--for", lasting)
    assert refused.exit_code == (2 if asks else 0)
    if asks:
        assert made == []
        assert "add --yes" in refused.stderr
    run("token", "create", "--scope", "jobs:read", "--for", lasting, "--yes")
    assert len(made) == (1 if asks else 2)


def test_a_scope_is_asked_for_by_example(run: Run, made: list[tuple[object, ...]]) -> None:
    for arguments in ((), ("--scope", " , ")):
        assert "cloudml token create --scope jobs:read" in run("token", "create", *arguments).stderr
    assert made == []


@pytest.mark.parametrize("command", ["revoke", "delete"])
def test_a_token_is_named_by_its_id_or_its_text(
    run: Run, made: list[tuple[object, ...]], command: str
) -> None:
    done = run("token", command, TEXT, "tkabcdefghjkmnpq")
    assert done.exit_code == 0, done.output
    assert made == [("tkabcdefghjkmnpq",), ("tkabcdefghjkmnpq",)]
    assert "s" * 43 not in done.output
