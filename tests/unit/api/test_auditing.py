"""Every door leaves the same trace, in the transaction of the change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cloud_ml.domain.audit import AuditEntry, AuditFilter
from cloud_ml.domain.tenancy import Role
from cloud_ml.errors import OutOfSpace
from support.platform import Served

pytestmark = pytest.mark.anyio


def entries(served: Served) -> list[AuditEntry]:
    return list(served.store.audit(AuditFilter()).items)


def audit_rows(served: Served) -> list[tuple[str, str, str]]:
    return [(entry.operation, entry.target, entry.outcome) for entry in entries(served)]


async def test_who_when_from_where_what_and_under_which_request(served: Served) -> None:
    answer = await served.member.call("POST", "/api/v1/jobs", served.job(job_name="linear"))
    (entry,) = entries(served)
    assert entry == AuditEntry(
        at=served.clock(),
        org="default",
        user="mei",
        key=served.member.identity.access_key,
        address="127.0.0.1",
        request=answer.headers["x-request-id"],
        operation="jobs.submit",
        target="linear",
        outcome="done",
        id=entry.id,
    )


async def test_both_surfaces_tell_the_same(served: Served) -> None:
    v1 = "/cloud_ml/v1/train"
    await served.member.call("POST", "/api/v1/jobs", served.job(job_name="a", save_mode=True))
    await served.member.call("POST", "/api/v1/jobs/a/start")
    await served.member.call("DELETE", "/api/v1/jobs/a")
    await served.member.original("POST", v1, served.job(job_name="b", save_mode=True))
    await served.member.original("GET", f"{v1}/b/start")
    await served.admin.original("DELETE", f"{v1}/b?org_id=1")
    found = audit_rows(served)[::-1]
    assert [operation for operation, _, _ in found] == [
        "jobs.submit",
        "jobs.start",
        "jobs.delete",
    ] * 2
    assert [target for _, target, _ in found] == ["a", "a", "a", "b", "b", "b@1"]


async def test_operations_of_studies_and_tensorboards_have_their_names(served: Served) -> None:
    await served.member.call("POST", "/api/v1/studies", {"name": "Rates"})
    await served.member.call("POST", "/api/v1/studies/rates/stop")
    await served.member.call("DELETE", "/api/v1/studies/rates")
    await served.member.call("DELETE", "/api/v1/tensorboards/curves")
    await served.member.original("POST", "/cloud_ml/v1/hp", {"hp_name": "Rates"})
    await served.member.original("DELETE", "/cloud_ml/v1/tensorboard/curves")
    await served.member.original("DELETE", "/cloud_ml/v1/model/digits/v1")
    assert [(operation, target) for operation, target, _ in audit_rows(served)[::-1]] == [
        ("studies.create", "Rates"),
        ("studies.stop", "rates"),
        ("studies.delete", "rates"),
        ("tensorboards.delete", "curves"),
        ("studies.create", "Rates"),
        ("tensorboards.delete", "curves"),
        ("models.delete", "digits/v1"),
    ]


async def test_storage_is_told_by_bucket_and_key(served: Served) -> None:
    await served.member.call("PUT", "/api/v1/storage/scratch")
    await served.member.call("PUT", "/api/v1/storage/scratch/a/b.txt", body=b"hello")
    await served.member.call("DELETE", "/api/v1/storage/scratch/a/b.txt")
    assert [(operation, target) for operation, target, _ in audit_rows(served)[::-1]] == [
        ("storage.create_bucket", "scratch"),
        ("storage.upload", "scratch/a/b.txt"),
        ("storage.delete", "scratch/a/b.txt"),
    ]


async def test_a_refusal_is_told_with_its_code(served: Served) -> None:
    await served.stranger.call("POST", "/api/v1/jobs/nobody/cancel")
    await served.member.call("POST", "/api/v1/jobs", served.job(job_name="Wrong_Name"))
    assert audit_rows(served) == [
        ("jobs.submit", "Wrong_Name", "invalid"),
        ("jobs.cancel", "nobody", "not_found"),
    ]


async def test_a_creation_is_told_with_what_was_asked_for_done_or_refused(served: Served) -> None:
    organisation = served.platform.identities.organisation("default")
    owner = served.as_caller(
        served.platform.identities.create_key(organisation, "olga", role=Role.OWNER)
    )
    users = "/api/v1/admin/users"
    await owner.call("POST", users, {"name": "eve", "role": "admin"})
    await owner.call("POST", users, {"name": "eve", "mail": ""})
    await owner.call("PATCH", f"{users}/eve", {"role": "admin"})
    await owner.call("PATCH", f"{users}/eve", {"role": "owner"})
    await owner.call("POST", "/api/v1/admin/orgs", {"name": "mine", "default_bucket": "m-data"})
    await owner.call("POST", "/api/v1/admin/orgs", {"name": "mine", "default_bucket": ""})
    await owner.call("POST", "/api/v1/admin/keys?org=other", {"user": "zoe"})
    await owner.call("PUT", "/api/v1/admin/quota/default", {"train": {"cpu": "999"}})
    await served.member.call("POST", "/api/v1/tokens", {"scopes": ["all"], "expires_in_s": -1})
    found = [(one.operation, one.target, one.outcome, one.change) for one in entries(served)[::-1]]
    assert found == [
        ("admin.create_user", "eve", "forbidden", "role: admin"),
        ("admin.create_user", "eve", "done", "role: member"),
        ("admin.change_user", "eve", "forbidden", "role: admin"),
        ("admin.change_user", "eve", "done", "role: member → owner"),
        ("admin.create_org", "mine", "forbidden", "default_bucket: m-data"),
        ("admin.create_org", "mine", "forbidden", ""),
        ("admin.create_key", "zoe@other", "not_found", "user: zoe"),
        ("quota.update", "default", "forbidden", "train.cpu: 999"),
        ("tokens.create", "", "invalid", "scopes: all, expires_in_s: -1"),
    ]


async def test_a_refused_creation_names_what_it_was_about(served: Served) -> None:
    await served.member.call("POST", "/api/v1/jobs/check", {"job_name": "Linear"})
    await served.member.original("POST", "/cloud_ml/v1/train", {"job_name": "Linear"})
    await served.member.call("POST", "/api/v1/models", {"model_name": "Digits"})
    await served.member.call("POST", "/api/v1/secrets", {"name": "Wrong name", "value": "hunter2"})
    assert [(operation, target) for operation, target, _ in audit_rows(served)[::-1]] == [
        ("jobs.check", "Linear"),
        ("jobs.submit", "Linear"),
        ("models.create", "Digits"),
        ("secrets.create", "Wrong name"),
    ]
    assert "hunter2" not in str(entries(served))


@pytest.mark.parametrize(
    "document",
    [
        {"name": "x" * 100_000, "role": "admin"},
        {"name": ["eve"], "role": {"admin": {"deep": "y" * 10_000}}},
        {"name": "eve", "role": "z" * 10_000},
        {"name": "eve", "secret_key": "hunter2", "password": "hunter2"},
        {"name": "a\x00b", "role": ["q" * 1000] * 1000},
    ],
)
async def test_what_a_refused_caller_sends_is_bounded(
    served: Served, document: dict[str, object]
) -> None:
    answer = await served.member.call("POST", "/api/v1/admin/users", document)
    assert answer.status in (400, 403)
    (entry,) = entries(served)
    assert (len(entry.target) <= 101, len(entry.change) <= 512) == (True, True)
    assert "hunter2" not in str(entry)
    assert "\x00" not in entry.target


async def test_a_body_that_is_no_document_leaves_an_entry_without_a_target(served: Served) -> None:
    await served.member.call("POST", "/api/v1/admin/users", body=b"\xff{" + b"[" * 5000)
    assert audit_rows(served) == [("admin.create_user", "", "invalid")]


async def test_a_bucket_that_stays_is_not_on_record_as_removed(served: Served) -> None:
    await served.member.call("PUT", "/api/v1/storage/scratch")
    await served.member.call("PUT", "/api/v1/storage/scratch/a.txt", body=b"hello")
    headers = served.member.sign("DELETE", "/api/v1/storage/scratch")
    for expected in (409, 401):
        answer = await served.client.send("DELETE", "/api/v1/storage/scratch", headers)
        assert answer.status == expected
    await served.member.call("DELETE", "/api/v1/storage/scratch/a.txt")
    await served.member.call("DELETE", "/api/v1/storage/scratch")
    assert [row for row in audit_rows(served)[::-1] if row[0] == "storage.delete_bucket"] == [
        ("storage.delete_bucket", "scratch", "conflict"),
        ("storage.delete_bucket", "scratch", "seen_before"),
        ("storage.delete_bucket", "scratch", "done"),
    ]


async def test_a_removal_by_force_is_on_record_once(served: Served) -> None:
    await served.member.call("PUT", "/api/v1/storage/scratch")
    await served.member.call("PUT", "/api/v1/storage/scratch/a.txt", body=b"hello")
    await served.member.call("DELETE", "/api/v1/storage/scratch?force=true")
    assert audit_rows(served)[:1] == [("storage.delete_bucket", "scratch", "done")]
    assert len(audit_rows(served)) == 3


async def test_a_bucket_name_that_is_taken_is_not_on_record_as_made(served: Served) -> None:
    await served.member.call("PUT", "/api/v1/storage/scratch")
    assert (await served.stranger.call("PUT", "/api/v1/storage/scratch")).status == 409
    assert [outcome for _, _, outcome in audit_rows(served)] == ["already_exists", "done"]


async def test_reads_and_strangers_without_a_key_leave_nothing(served: Served) -> None:
    await served.member.call("GET", "/api/v1/jobs")
    await served.member.original("POST", "/cloud_ml/v1/quota", {})
    wrong = served.member.sign("POST", "/api/v1/jobs/x/cancel") | {
        "Authorization": "CLOUDML1-HMAC-SHA256 " + "0" * 64
    }
    assert (await served.client.send("POST", "/api/v1/jobs/x/cancel", wrong)).status == 401
    assert entries(served) == []


async def test_a_replay_is_on_record_as_what_it_is(served: Served) -> None:
    headers = served.member.sign("PUT", "/api/v1/storage/scratch")
    assert [
        (await served.client.send("PUT", "/api/v1/storage/scratch", headers)).status for _ in "ab"
    ] == [201, 401]
    assert [outcome for _, _, outcome in audit_rows(served)] == ["seen_before", "done"]


async def test_a_viewer_is_stopped_at_every_door_and_may_look(served: Served) -> None:
    await served.submitted(job_name="linear")
    organisation = served.platform.identities.organisation("default")
    viewer = served.as_caller(
        served.platform.identities.create_key(
            organisation, "vic", role=Role.VIEWER, legacy_signatures=True
        )
    )
    assert (await viewer.call("GET", "/api/v1/jobs/linear")).status == 200
    answers = [
        await viewer.call("POST", "/api/v1/jobs", served.job()),
        await viewer.call("DELETE", "/api/v1/jobs/linear"),
        await viewer.call("PUT", "/api/v1/storage/cloudml/x", body=b"x"),
        await viewer.call("PUT", "/api/v1/storage/scratch"),
        await viewer.original("POST", "/cloud_ml/v1/train", served.job()),
        await viewer.original("GET", "/cloud_ml/v1/train/linear/start"),
    ]
    assert {
        (answer.status, answer.json()["code"], answer.json()["allowed"]) for answer in answers
    } == {(403, "forbidden", "admin or owner or member")}
    assert [outcome for _, _, outcome in audit_rows(served)[:6]] == ["forbidden"] * 6


async def test_an_answer_does_not_depend_on_the_note_of_a_refusal(served: Served) -> None:
    served.store.fail_writes(OutOfSpace("the disk is full"))
    assert (await served.member.call("POST", "/api/v1/jobs/none/cancel")).status == 404


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("jobs.sumbit", "Did you mean jobs.submit"),
        ("job.", "Did you mean jobs.?"),
        ("job", None),
        ("Jobs.submit", "Did you mean jobs.submit?"),
        ("submit", "Did you mean jobs.submit?"),
        ("admin.create_usr", "Did you mean admin.create_user"),
    ],
)
async def test_an_operation_that_there_is_not_is_refused_with_the_nearest(
    served: Served, wrong: str, hint: str | None
) -> None:
    answer = await served.admin.call("GET", f"/api/v1/admin/audit?operation={wrong}")
    if hint is None:  # the beginning of one
        assert (answer.status, answer.json()["items"]) == (200, [])
        return
    assert (answer.status, answer.json()["field"]) == (400, "operation")
    assert answer.json()["hint"].startswith(hint)
    assert "jobs.," in answer.json()["allowed"]


async def test_an_operation_of_an_older_version_is_still_found(served: Served) -> None:
    await served.member.call("POST", "/api/v1/jobs", served.job(job_name="linear"))
    (entry,) = entries(served)
    served.store.add_audit(replace(entry, id=0, operation="jobs.launch"))
    answer = await served.admin.call("GET", "/api/v1/admin/audit?operation=jobs.launch")
    assert [one["operation"] for one in answer.json()["items"]] == ["jobs.launch"]
