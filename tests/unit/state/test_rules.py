"""The rules that all stores share, one table each."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cloud_ml.domain.records import Kind
from cloud_ml.domain.tenancy import ACCESS_KEY, ORGANISATION, SYSTEM, USER
from cloud_ml.errors import FenceLost
from cloud_ml.state import rules
from cloud_ml.state.base import Fence, Lease

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def held(seconds: int, *, epoch: int = 4) -> Lease:
    return Lease("l", "a", epoch, NOW + timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("current", "holder", "epoch"),
    [
        (None, "a", 1),
        (held(1), "a", 4),
        (held(1), "b", None),
        (held(0), "b", 5),
        (held(0), "a", 5),
        (held(-1), "a", 5),
    ],
)
def test_next_lease(current: Lease | None, holder: str, epoch: int | None) -> None:
    lease = rules.next_lease(current, "l", holder, ttl_s=2.5, now=NOW)
    expected = None if epoch is None else Lease("l", holder, epoch, NOW + timedelta(seconds=2.5))
    assert lease == expected


@pytest.mark.parametrize("epoch", [None, 1, 3])
def test_a_fence_of_another_epoch_is_lost(epoch: int | None) -> None:
    with pytest.raises(FenceLost, match="'l'"):
        rules.check_fence(Fence("l", 2), epoch)
    rules.check_fence(Fence("l", 2), 2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("plain 模型", "plain 模型"), ("a\x00b", "a\ufffdb"), ("a\ud83db", "a?b"), ("", "")],
)
def test_printable(text: str, expected: str) -> None:
    assert rules.printable(text) == expected


def test_uids_are_safe_in_names_and_differ() -> None:
    uids = {rules.new_uid() for _ in range(1000)}
    assert len(uids) == 1000
    assert all(uid.isalnum() and uid == uid.lower() and len(uid) == 32 for uid in uids)


@pytest.mark.parametrize(
    ("org", "kind", "sentence"),
    [
        (SYSTEM, ORGANISATION, "there is an organisation named 'a' already"),
        ("lab", USER, "lab has a user named 'a' already"),
        ("lab", ACCESS_KEY, "lab has an access key named 'a' already"),
    ],
)
def test_a_name_that_is_taken_has_the_article_of_its_kind(
    org: str, kind: Kind[Any, Any], sentence: str
) -> None:
    assert rules.name_taken(kind, org, "a", object(), object()).message == sentence
