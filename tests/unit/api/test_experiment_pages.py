"""Experiments are listed in pages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from cloud_ml.aio.client import AsyncCloudMlClient
from support.listening import listening
from support.platform import Served

pytestmark = pytest.mark.anyio
MLFLOW = "/mlflow/api/2.0/mlflow/experiments"


async def _create(served: Served, count: int) -> list[str]:
    """Ids of experiments, newest first, with the one that is always there."""
    made = []
    for number in range(count):
        answer = await served.member.call("POST", f"{MLFLOW}/create", {"name": f"e{number}"})
        made.append(str(answer.json()["experiment_id"]))
        served.clock.advance(1)
    return [*reversed(made), "0"]


async def _page(served: Served, query: str) -> dict[str, Any]:
    answer = await served.member.call("GET", f"/api/v1/experiments?{query}")
    assert answer.status == 200, answer.text
    page: dict[str, Any] = answer.json()
    return page


async def test_each_experiment_is_on_one_page_though_one_is_deleted_in_between(
    served: Served,
) -> None:
    ids = await _create(served, 4)
    first = await _page(served, "limit=2")
    assert [one["id"] for one in first["items"]] == ids[:2]
    assert first["next"] == ids[1]
    deleted = await served.member.call("POST", f"{MLFLOW}/delete", {"experiment_id": ids[1]})
    assert deleted.status == 200, deleted.text
    second = await _page(served, f"limit=3&after={first['next']}")
    assert [one["id"] for one in second["items"]] == ids[2:]
    assert second["next"] is None


@pytest.mark.parametrize(
    ("query", "field"), [("after=never", "after"), ("limit=0", "limit"), ("limit=1001", "limit")]
)
async def test_a_page_that_cannot_be_is_refused(served: Served, query: str, field: str) -> None:
    answer = await served.member.call("GET", f"/api/v1/experiments?{query}")
    assert answer.status == 400
    assert answer.json()["field"] == field


async def test_a_client_lists_all_pages(served: Served) -> None:
    served.clock.now = datetime.now(UTC)
    ids = await _create(served, 60)
    async with listening(served) as port:
        key = served.member.identity
        endpoint = f"http://127.0.0.1:{port}"
        async with AsyncCloudMlClient(key.access_key, key.secret, endpoint) as client:
            assert [one.id for one in await client.experiments.list()] == ids
            assert await client.runs.experiments() == await client.experiments.list()
