"""Who is disabled or deleted: the number of jobs that continue is said."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.models.admin.quota import OrgQuota, QuotaLine
from cloud_ml.sdk.admin.calls import Admin
from cloud_ml.sdk.admin.quota import Quota

if TYPE_CHECKING:
    from unit.cli.conftest import Run


@pytest.fixture(autouse=True)
def changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server does what it is asked for."""

    def change(_: Admin, name: str, **__: Any) -> object:
        return SimpleNamespace(name=name)

    for call in ("change_org", "change_user", "delete_user"):
        monkeypatch.setattr(Admin, call, change)


@pytest.mark.parametrize(
    ("jobs", "services", "note"),
    [
        (2, 1, "Of vision, these continue: 2 jobs and 1 model service.\n"),
        (1, 0, "Of vision, these continue: 1 job.\n"),
        (0, 0, ""),
    ],
)
def test_an_organisation(
    run: Run, monkeypatch: pytest.MonkeyPatch, jobs: int, services: int, note: str
) -> None:
    lines = [
        QuotaLine(kind="train", count_used=jobs),
        QuotaLine(kind="model", count_used=services),
        QuotaLine(kind="total", count_used=jobs + services),
    ]

    def show(_: Quota, *, org: str | None = None) -> list[OrgQuota]:
        return [OrgQuota(org=org or "", org_id="2", items=lines)]

    monkeypatch.setattr(Quota, "show", show)
    assert run("admin", "orgs", "disable", "vision").stderr == note


@pytest.mark.parametrize(
    ("number", "counted"), [(0, ""), (1, "1 job."), (3, "3 jobs."), (100, "100 jobs or more.")]
)
@pytest.mark.parametrize("words", [["disable"], ["delete", "--yes"]], ids=lambda words: words[0])
def test_a_user(
    run: Run, monkeypatch: pytest.MonkeyPatch, words: list[str], number: int, counted: str
) -> None:
    def jobs(_: CloudMlClient, *, state: str, user: str, limit: int) -> Iterator[object]:
        assert ("Running" in state, user, limit) == (True, "max", 100)
        return iter([object()] * number)

    monkeypatch.setattr(CloudMlClient, "list_train_jobs", jobs)
    result = run("admin", "users", *words, "max")
    expected = f"Of max, these continue: {counted} To see them: cloudml jobs list --user max"
    assert result.stderr.startswith(expected) if counted else not result.stderr
