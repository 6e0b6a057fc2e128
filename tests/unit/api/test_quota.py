"""Quotas over HTTP, in both generations' forms: shown, set, kept, applied for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cloud_ml.domain.tenancy import Role
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.errors import QuotaExceeded
from support.platform import Caller, Served

pytestmark = pytest.mark.anyio

MLFLOW = "/mlflow/api/2.0/mlflow"
QUOTA = "/api/v1/admin/quota"
V1 = "/cloud_ml/v1"


async def good(caller: Caller, method: str, path: str, document: Any = None) -> Any:
    answer = await caller.call(method, QUOTA + path, document)
    assert answer.status < 300, answer.text
    return answer.json()


@pytest.fixture
def owner(served: Served) -> Caller:
    """The owner of ``other``, where the stranger is a member."""
    organisation = served.platform.identities.organisation("other")
    return served.as_caller(
        served.platform.identities.create_key(
            organisation, "olga", role=Role.OWNER, legacy_signatures=True
        )
    )


async def test_without_limits_everything_is_unlimited_and_used_is_what_runs(served: Served) -> None:
    job = await served.submitted(cpu_limit="0.5", memory_limit="1G")
    served.move(job["uid"], Phase.STARTING)
    await served.submitted(cpu_limit="2")  # waits: counts as nothing
    (quota,) = (await good(served.member, "GET", ""))["items"]
    train = next(line for line in quota["items"] if line["kind"] == "train")
    assert (train["cpu_used"], train["memory_used"], train["count_used"]) == (0.5, 2**30, 1)
    assert {train[name] for name in ("cpu_limit", "memory_limit", "gpu_limit", "count_limit")} == {
        None
    }
    assert [line["kind"] for line in quota["items"]] == ["train", "model", "dev", "total"]


async def test_a_job_that_can_never_fit_is_refused_by_name(served: Served) -> None:
    await good(served.admin, "PUT", "/other", {"train": {"cpu": "1", "memory": "2G"}})
    for fields, field, allowed in (
        ({"cpu_limit": "2", "memory_limit": "1G"}, "cpu_limit", "at most 1 core"),
        ({"cpu_limit": "1", "memory_limit": "3G"}, "memory_limit", "at most 2G"),
        ({"cpu_limit": "1"}, "memory_limit", "at most 2G, said explicitly"),
    ):
        trainer = "fds://others/t.tar.gz"
        for refused in (
            await served.stranger.call(
                "POST", "/api/v1/jobs", served.job(trainer_uri=trainer, **fields)
            ),
            await served.stranger.original(
                "POST", f"{V1}/train", served.job(trainer_uri=trainer, **fields)
            ),
        ):
            document = refused.json()
            assert (refused.status, document["code"]) == (403, "quota_exceeded")
            assert (document["field"], document["allowed"]) == (field, allowed)
            assert document.get("value") == fields.get(field)
    assert (
        await served.member.call("POST", "/api/v1/jobs", served.job(cpu_limit="2"))
    ).status == 201


async def test_limits_are_set_by_part_and_taken_back(served: Served) -> None:
    await good(
        served.admin, "PUT", "/other", {"train": {"cpu": "1.5", "count": "3"}, "storage": "1G"}
    )
    changed = await good(
        served.admin, "PUT", "/other", {"train": {"cpu": "unlimited"}, "dev": {"gpu": "0"}}
    )
    lines = {line["kind"]: line for line in changed["items"]}
    assert (
        lines["train"]["cpu_limit"],
        lines["train"]["count_limit"],
        lines["dev"]["gpu_limit"],
    ) == (None, 3, 0)
    assert (changed["storage_limit"], changed["storage_used"]) == (2**30, 0)
    assert (await good(served.admin, "PUT", "/other", {"storage": "default"}))[
        "storage_limit"
    ] is None


async def test_points_beyond_the_quota_are_refused_by_name(served: Served) -> None:
    await good(served.admin, "PUT", "/default", {"points": "2"})
    made = await served.member.call("POST", f"{MLFLOW}/runs/create", {"experiment_id": "0"})
    uid = made.json()["run"]["info"]["run_id"]

    async def log(step: int) -> Any:
        value = {"key": "loss", "value": 1, "step": step, "timestamp": step}
        document = {"run_id": uid, "metrics": [value]}
        return await served.member.call("POST", f"{MLFLOW}/runs/log-batch", document)

    assert [(await log(step)).status for step in (1, 2, 3)] == [200, 200, 400]
    assert "its quota of points" in (await log(4)).json()["message"]
    (quota,) = (await good(served.admin, "GET", "?org=default"))["items"]
    assert (quota["points_used"], quota["points_limit"]) == (2, 2)
    await served.member.call("DELETE", f"/api/v1/runs/{uid}")
    (quota,) = (await good(served.admin, "GET", "?org=default"))["items"]
    assert quota["points_used"] == 0


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"train": {"cpu": "many"}}, "train.cpu"),
        ({"train": {"memory": "100MB"}}, "train.memory"),
        ({"total": {"count": "-3"}}, "total.count"),
        ({"storage": "5"}, "storage"),
        ({"points": "5K"}, "points"),
        ({"trian": {}}, "trian"),
    ],
)
async def test_a_wrong_limit_is_named(served: Served, document: dict[str, Any], field: str) -> None:
    answer = await served.admin.call("PUT", f"{QUOTA}/other", document)
    assert (answer.status, answer.json()["field"]) == (400, field)


async def test_only_an_admin_sets_and_nobody_sees_others(served: Served, owner: Caller) -> None:
    assert (await owner.call("PUT", f"{QUOTA}/other", {"train": {"cpu": "9"}})).status == 403
    foreign, missing = [
        await owner.call("GET", f"{QUOTA}?org={org}") for org in ("default", "nowhere")
    ]
    assert (foreign.status, foreign.text) == (404, missing.text.replace("nowhere", "default"))
    everybody = await owner.call("GET", f"{QUOTA}?org=-1")
    assert everybody.status == 403
    assert "only an administrator" in everybody.json()["message"]
    assert "`cloudml quota list`" in everybody.json()["hint"]
    assert [one["org"] for one in (await good(served.admin, "GET", "?org=-1"))["items"]] == [
        "default",
        "other",
    ]
    assert (await served.admin.call("PUT", f"{QUOTA}/nowhere", {})).status == 404


async def test_uploads_beyond_the_quota_are_refused_and_leave_nothing(served: Served) -> None:
    await good(served.admin, "PUT", "/other", {"storage": "1K"})
    there = "/api/v1/storage/others"
    assert (await served.stranger.call("PUT", f"{there}/a", body=b"x" * 600)).status == 201
    refused = await served.stranger.call("PUT", f"{there}/b", body=b"x" * 600)
    assert (refused.status, refused.json()["code"], refused.json()["allowed"]) == (
        403,
        "quota_exceeded",
        "at most 424 bytes",
    )
    assert (await served.stranger.call("GET", f"{there}/b")).status == 404
    assert (await served.stranger.call("PUT", f"{there}/c", body=b"x" * 424)).status == 201
    assert (await served.stranger.call("PUT", f"{there}/d", body=b"")).status == 403
    begin = "/api/v1/storage/-/uploads/others"
    assert (await served.stranger.call("POST", begin, {"key": "e", "size": 600})).json()[
        "code"
    ] == "quota_exceeded"
    assert (
        await served.member.call("PUT", "/api/v1/storage/cloudml/x", body=b"x" * 2000)
    ).status == 201
    (quota,) = (await good(served.stranger, "GET", ""))["items"]
    assert (quota["storage_used"], quota["storage_limit"]) == (1024, 1024)


async def test_an_application_is_decided_by_an_admin(served: Served, owner: Caller) -> None:
    application = {"service": "jobs", "cpu": "8", "memory": "16G", "gpu": "1"}
    assert (await served.stranger.call("POST", f"{QUOTA}/applications", application)).status == 403
    made = await good(owner, "POST", "/applications", application)
    again = await good(owner, "POST", "/applications", {**application, "cpu": "99"})
    assert (await owner.call("POST", f"{QUOTA}/applications/{made['id']}/approve")).status == 403
    assert [one["id"] for one in (await good(served.admin, "GET", "/applications"))["items"]] == [
        again["id"],
        made["id"],
    ]
    approved = await good(served.admin, "POST", f"/applications/{made['id']}/approve")
    assert (approved["state"], approved["decided_by"]) == ("approved", "admin")
    await good(served.admin, "POST", f"/applications/{again['id']}/decline")
    answer = await served.admin.call("POST", f"{QUOTA}/applications/{again['id']}/approve")
    assert answer.status == 409
    (quota,) = (await good(owner, "GET", ""))["items"]
    assert (quota["items"][0]["cpu_limit"], quota["items"][0]["memory_limit"]) == (8.0, 16 * 2**30)
    assert {one["state"] for one in (await good(owner, "GET", "/applications"))["items"]} == {
        "approved",
        "declined",
    }
    assert (await good(served.member, "GET", "/applications"))["items"] == []


# ---- the original wire, sections 3.6 and 3.7


async def test_put_of_the_administrators_tool(served: Served) -> None:
    document = {
        "org_id": "2",
        "org_mail": "o@example.com",
        "project": "vision",
        "train_cpu_quota": "10",
        "train_memory_quota": "20.0G",
        "train_gpu_quota": 1,
        "train_count_quota": 5,
        "train_priority_rank": "2",
        "train_priority_quota": "7",
        "total_cpu_quota": "12.5",
        "tensorboard_quota": 3,
    }
    answer = await served.admin.original("PUT", f"{V1}/quota/2", document)
    assert answer.status == 200, answer.text
    row = answer.json()
    assert all(isinstance(value, str) for value in row.values())
    expected = {
        "org_id": "2",
        "org_name": "other",
        "org_mail": "o@example.com",
        "train_cpu_quota": "10.0",
        "train_memory_quota": "20.0G",
        "train_gpu_quota": "1",
        "train_count_quota": "5",
        "train_priority_rank": "2",
        "train_priority_quota": "7",
        "train_priority_used": "0",
        "total_cpu_quota": "12.5",
        "total_memory_quota": "-1.0K",
        "total_gpu_quota": "-1",
        "tensorboard_quota": "3",
        "model_count_quota": "-1",
    }
    assert {name: row.get(name) for name in expected} == expected
    (own,) = (await served.stranger.original("POST", f"{V1}/quota", {"org_mail": "x"})).json()[
        "data"
    ]
    assert own == row, "a known address is told, not the one in the question"
    (mine,) = (
        await served.member.original("POST", f"{V1}/quota", {"org_mail": "m@example.com"})
    ).json()["data"]
    assert mine["org_mail"] == "m@example.com", "its client applies for more only with an address"
    unlimited = {"org_id": "2", "train_cpu_quota": "-1", "train_count_quota": "-1"}
    back = (await served.admin.original("PUT", f"{V1}/quota/2", unlimited)).json()
    assert (back["train_count_quota"], back["train_cpu_quota"]) == ("-1", "4.0"), (
        "what the server has"
    )


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"train_cpu_quota": "lots"}, "train_cpu_quota"),
        ({"train_count_quota": 0}, "train_count_quota"),
        ({"train_priority_rank": "4"}, "train_priority_rank"),
        ({"train_memory_quota": 5}, "train_memory_quota"),
        ({"org_name": "renamed"}, "org_name"),
        ({"train_disk_quota": "1"}, "train_disk_quota"),
    ],
)
async def test_put_names_what_is_wrong(
    served: Served, document: dict[str, Any], field: str
) -> None:
    answer = await served.admin.original("PUT", f"{V1}/quota/2", {"org_id": "2", **document})
    assert (answer.status, answer.json()["field"], answer.json()["error"]) == (400, field, True)


async def test_put_is_for_administrators(served: Served, owner: Caller) -> None:
    for org in ("1", "2", "9"):
        assert (await owner.original("PUT", f"{V1}/quota/{org}", {"org_id": org})).status == 403
    assert (await served.admin.original("PUT", f"{V1}/quota/9", {"org_id": "9"})).status == 404


async def test_an_application_of_the_original_client(served: Served, owner: Caller) -> None:
    document = {
        "org_id": "2",
        "org_name": "other",
        "org_mail": "o@example.com",
        "region": "http://cloudml",
        "service": "jobs",
        "cpu_limit": "2.5",
        "memory_limit": "10G",
        "gpu_limit": "2.5",  # its version 0.3.71 sends the cpu here
    }
    answer = await owner.original("POST", f"{V1}/application?org_id=2", document)
    assert (answer.status, answer.json()["error"]) == (200, False)
    (made,) = (await good(served.admin, "GET", "/applications"))["items"]
    facts = ("org", "user", "service", "cpu", "memory", "gpu", "mail")
    assert [made[name] for name in facts] == [
        "other",
        "olga",
        "jobs",
        2.5,
        10 * 2**30,
        2,
        "o@example.com",
    ]
    refused = [
        await owner.original("POST", f"{V1}/application?org_id={org}", document)
        for org in ("1", "77")
    ]
    assert [(one.status, one.json()["error"]) for one in refused] == [(404, True)] * 2
    for name in ("service", "cpu_limit"):
        wrong = await owner.original("POST", f"{V1}/application?org_id=2", {**document, name: None})
        assert (wrong.status, wrong.json()["field"]) == (400, name)


async def test_parts_and_uploads_under_way_count_before_they_are_objects(served: Served) -> None:
    await good(served.admin, "PUT", "/other", {"storage": "1K"})
    store, uploads = "/api/v1/storage/others", "/api/v1/storage/-/uploads/others"
    ids = [(await served.stranger.call("POST", uploads, {"key": key})).json()["id"] for key in "ab"]

    async def part(upload: str, size: int) -> int:
        return (
            await served.stranger.call("PUT", f"{uploads}/{upload}/parts/1", body=bytes(size))
        ).status

    assert [await part(ids[0], 600), await part(ids[1], 600)] == [200, 403], (
        "parts of another upload count"
    )
    assert (await served.stranger.call("PUT", f"{store}/c", body=bytes(600))).status == 403
    assert (await served.stranger.call("POST", f"{uploads}/{ids[0]}/complete", {})).status == 200
    assert (await served.stranger.call("DELETE", f"{uploads}/{ids[1]}")).status == 204

    going, go = asyncio.Event(), asyncio.Event()

    async def slow() -> int:
        storage = served.platform.storage
        with storage.upload("other", "others", "slow") as upload:
            upload.write(bytes(300))
            going.set()
            await go.wait()
            upload.write(bytes(100))
            upload.finish(None)
        return 201

    first = asyncio.ensure_future(slow())
    await going.wait()
    beside = [
        (await served.stranger.call("PUT", f"{store}/{key}", body=bytes(size))).status
        for key, size in (("d", 200), ("e", 50), ("f", 40))
    ]
    assert beside == [403, 201, 201], "what is under way counts while it is"
    go.set()
    with pytest.raises(QuotaExceeded):
        await first
    assert (await served.stranger.call("PUT", f"{store}/g", body=bytes(310))).status == 201, (
        "and no longer"
    )


def model(name: str, **fields: Any) -> dict[str, Any]:
    return {"model_name": name, "model_version": "v1", "model_uri": "fds://cloudml/m", **fields}


async def test_services_that_could_never_start_are_refused(served: Served) -> None:
    large = await served.member.call("POST", "/api/v1/models", model("a", memory_limit="999G"))
    assert (large.status, large.json()["field"]) == (400, "memory_limit")
    message = "memory_limit is 999G, more than this server has: at most 8G"
    assert large.json()["message"] == message
    made = await served.member.call("POST", "/api/v1/models", model("a", memory_limit="1G"))
    assert made.status == 201
    for change in ({"memory_limit": "999G"}, {"cpu_limit": "99"}):
        grown = await served.member.call("PATCH", "/api/v1/models/a/v1", change)
        assert (grown.status, grown.json()["field"]) == (400, *change)
    assert (
        await served.member.call("PATCH", "/api/v1/models/a/v1", {"cpu_limit": "2"})
    ).status == 200


async def test_services_are_refused_over_their_quota(served: Served) -> None:
    limits = {"model": {"cpu": "2", "count": "1"}}
    assert (await served.admin.call("PUT", "/api/v1/admin/quota/default", limits)).status == 200
    unsaid = await served.member.call("POST", "/api/v1/models", model("a"))
    assert (unsaid.status, unsaid.json()["code"], unsaid.json()["field"]) == (
        403,
        "quota_exceeded",
        "cpu_limit",
    )
    assert "a replica has to name its cpu_limit" in unsaid.json()["message"]
    large = await served.member.call("POST", "/api/v1/models", model("a", cpu_limit="3"))
    assert (
        "for model services: 0 cores of 2 cores are used, the replica asks for 3 cores"
        in large.json()["message"]
    )
    assert (
        await served.member.call("POST", "/api/v1/models", model("a", cpu_limit="1"))
    ).status == 201
    second = await served.member.call("POST", "/api/v1/models", model("b", cpu_limit="1"))
    assert (second.status, second.json()["message"]) == (
        403,
        "the quota of model services: 1 of 1 are there",
    )
    assert "cloudml admin quota set ORG -t models --count COUNT" in second.json()["hint"]
    saved = await served.member.call(
        "POST", "/api/v1/models", model("b", cpu_limit="1", save_mode=True)
    )
    assert saved.status == 201, "one that is not started takes no place"
    assert (await served.member.call("POST", "/api/v1/models/b/v1/start")).status == 403
    assert (
        await served.member.call("PATCH", "/api/v1/models/a/v1", {"cpu_limit": "3"})
    ).status == 403
    (shown,) = (await served.member.call("GET", "/api/v1/admin/quota")).json()["items"]
    line = next(one for one in shown["items"] if one["kind"] == "model")
    assert (line["count_used"], line["count_limit"]) == (1, 1)
