from __future__ import annotations

from typing import Any

import pytest

from cloud_ml.api.v1_compat import quotas
from cloud_ml.domain.workloads.phases import Phase
from support.platform import FewFrameworks, Served

pytestmark = pytest.mark.anyio

V1 = "/cloud_ml/v1"


async def running(served: Served, **limits: Any) -> None:
    job = await served.submitted(**limits)
    served.move(job["uid"], Phase.STARTING)
    served.move(job["uid"], Phase.RUNNING)


async def test_frameworks_need_no_signature(served: Served) -> None:
    assert (await served.client.send("GET", f"{V1}/framework")).json() == FewFrameworks.offered


async def test_a_key_can_be_checked(served: Served) -> None:
    for path in ("authentication", "quota", "org_ids"):
        assert (await served.member.original("GET", f"{V1}/{path}")).status == 200
    assert (await served.stranger.original("GET", f"{V1}/org_ids")).json() == {"org_id": "2"}


async def test_the_quota_counts_what_runs(served: Served) -> None:
    await running(served, cpu_limit="0.5", memory_limit="300M")
    await running(served, cpu_limit="1", memory_limit="1G")
    await served.submitted(cpu_limit="2")  # waits: counts as nothing
    (row,) = (
        await served.member.original("POST", f"{V1}/quota", {"org_mail": "a@example.com"})
    ).json()["data"]
    assert all(isinstance(value, str) for value in row.values())
    assert (row["train_cpu_used"], row["train_memory_used"], row["train_count_used"]) == (
        "1.5",
        "1.29G",
        "2",
    )
    assert (row["total_cpu_quota"], row["total_memory_quota"], row["total_gpu_quota"]) == (
        "-1.0",
        "-1.0K",
        "-1",
    )
    (other,) = (await served.stranger.original("GET", f"{V1}/quota")).json()["data"]
    assert (other["train_count_used"], other["org_id"]) == ("0", "2")


async def test_every_column_of_the_quota_table_is_there(served: Served) -> None:
    (row,) = (await served.member.original("GET", f"{V1}/quota")).json()["data"]
    kinds = [
        f"{p}_{r}_{s}"
        for p in ("train", "model", "dev")
        for r in ("memory", "cpu", "gpu", "count")
        for s in ("quota", "used")
    ]
    total = [f"total_{r}_{s}" for r in ("memory", "cpu", "gpu") for s in ("quota", "used")]
    assert set(kinds) | set(total) | {
        "tensorboard_quota",
        "tensorboard_used",
        "org_id",
        "org_name",
    } <= set(row)


async def test_an_administrator_sees_every_quota(served: Served) -> None:
    rows = (await served.admin.original("GET", f"{V1}/quota?org_id=-1")).json()["data"]
    assert [row["org_name"] for row in rows] == ["default", "other"]
    assert (await served.member.original("GET", f"{V1}/quota?org_id=-1")).status == 403


async def test_free_resources_are_what_nobody_was_given(served: Served) -> None:
    await running(served, cpu_limit="0.5", memory_limit="1G")
    (row,) = (await served.stranger.original("GET", f"{V1}/resources")).json()["data"]
    assert row == {"available_cpu": 3.5, "available_mem": "7.0G", "available_gpu": 0}


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0.0K"),
        (512, "0.5K"),
        (300 * 2**20, "300.0M"),
        (10 * 2**30, "10.0G"),
        (3 * 2**29, "1.5G"),
    ],
)
def test_memory_is_written_with_its_unit(count: int, text: str) -> None:
    assert quotas.memory(count) == text
