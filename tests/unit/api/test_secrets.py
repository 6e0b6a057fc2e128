"""``/api/v1/secrets``: a value comes in, and no answer, event, record or audit entry has it."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from cloud_ml.domain.audit import AuditFilter
from cloud_ml.domain.secrets import SECRET
from cloud_ml.usecases.secrets import SecretProblem
from support.asgi import Answer
from support.platform import TRAINER, Caller, Served

pytestmark = pytest.mark.anyio

VALUE = "hunter2-do-not-tell"
DATA = base64.b64encode(VALUE.encode()).decode()


async def create(caller: Caller, name: str = "db", data: str = DATA, **more: Any) -> Answer:
    return await caller.call("POST", "/api/v1/secrets", {"name": name, "data": data, **more})


def job(name: str, **more: Any) -> dict[str, Any]:
    return {"job_name": name, "module_name": "trainer.task", "trainer_uri": TRAINER, **more}


async def test_a_secret_is_stored_listed_described_and_deleted_without_its_value(
    served: Served,
) -> None:
    made = await create(served.member)
    assert made.status == 201, made.text
    assert made.json() | {"created_at": "", "updated_at": ""} == {
        "name": "db", "org": "default", "owner": "mei", "size": len(VALUE), "state": "Ready",
        "created_at": "", "updated_at": "", "used_by": None,
    }  # fmt: skip
    listed = await served.admin.call("GET", "/api/v1/secrets")
    assert listed.json()["items"] == [made.json()]
    described = await served.admin.call("GET", "/api/v1/secrets/db")
    assert described.json() == made.json() | {"used_by": []}
    gone = await served.member.call("DELETE", "/api/v1/secrets/db")
    assert gone.status == 200
    assert (await served.member.call("GET", "/api/v1/secrets/db")).status == 404
    recorded = "".join(answer.text for answer in (made, listed, described, gone)) + repr(
        served.store.audit(AuditFilter())
    )
    assert "secrets.create" in recorded
    assert VALUE not in recorded
    assert DATA not in recorded


async def test_the_original_wire_stores_a_secret_and_never_returns_it(served: Served) -> None:
    data = "\n".join((DATA[:8], DATA[8:], ""))  # as base64 of that time breaks lines
    made = await served.member.original(
        "POST", "/cloud_ml/v1/secret", {"secret_name": "db", "data": data}
    )
    row = {
        "org_id": "1",
        "org_name": "default",
        "secret_name": "db",
        "create_time": "2026-11-20T12:00:00Z",
    }
    assert (made.status, made.json()) == (200, {"data": row})
    assert (await served.admin.original("GET", "/cloud_ml/v1/secret")).json() == {"data": [row]}
    assert (await served.admin.original("GET", "/cloud_ml/v1/secret/db")).json() == {"data": row}
    assert [one.value for one in served.platform.secrets.values("default", ["db"])] == [
        VALUE.encode()
    ]
    assert (await served.stranger.original("GET", "/cloud_ml/v1/secret?org_id=-1")).status == 403
    await create(served.stranger, "theirs")
    everybody = (await served.admin.original("GET", "/cloud_ml/v1/secret?org_id=-1")).json()["data"]
    assert [(one["org_name"], one["secret_name"]) for one in everybody] == [
        ("default", "db"),
        ("other", "theirs"),
    ]
    wrong = await served.member.original(
        "POST", "/cloud_ml/v1/secret", {"secret_name": "x", "data": [VALUE]}
    )
    assert wrong.status == 400
    assert VALUE not in wrong.text
    assert (await served.member.original("DELETE", "/cloud_ml/v1/secret/db")).json()[
        "secret_name"
    ] == "db"
    assert (await served.member.original("GET", "/cloud_ml/v1/secret/db")).status == 404


async def test_a_name_that_is_taken_is_refused_unless_the_value_is_to_be_replaced(
    served: Served,
) -> None:
    await create(served.member)
    again = await create(served.member, data=base64.b64encode(b"newer").decode())
    assert again.status == 409
    assert "--replace" in again.json()["hint"]
    replaced = await create(served.member, data=base64.b64encode(b"newer").decode(), replace=True)
    assert (replaced.status, replaced.json()["size"]) == (201, 5)
    [line] = served.store.list(SECRET, org="default").items
    assert [one.value for one in served.platform.secrets.values("default", ["db"])] == [b"newer"]
    assert "newer" not in "".join(event.message for event in served.store.events(line.key.uid))


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"name": "db", "data": "not base64 " + VALUE}, "data"),
        ({"name": "db", "data": ""}, "data"),
        ({"name": "db", "data": {"password": VALUE}}, "data"),
        ({"name": "../db", "data": DATA}, "name"),
        ({"name": "DB_PASSWORD", "data": DATA}, "name"),
    ],
)
async def test_a_refusal_names_the_field_and_never_repeats_the_value(
    served: Served, document: dict[str, Any], field: str
) -> None:
    answer = await served.member.call("POST", "/api/v1/secrets", document)
    assert (answer.status, answer.json()["field"]) == (400, field)
    assert VALUE not in answer.text
    assert served.store.list(SECRET, org="default").items == ()


async def test_size_and_number_are_bounded(served: Served) -> None:
    settings = served.platform.secret_settings
    large = base64.b64encode(b"x" * (settings.size_limit_bytes + 1)).decode()
    answer = await create(served.member, data=large)
    assert answer.status == 413
    assert "secrets.size_limit_bytes" in answer.json()["allowed"]
    for number in range(settings.per_org):
        assert (await create(served.member, f"s{number}")).status == 201
    answer = await create(served.member, "one-more")
    assert answer.status == 403
    assert "secrets.per_org" in answer.json()["allowed"]
    assert (await create(served.stranger, "another-organisation")).status == 201


async def test_the_secrets_of_a_job_are_bounded(served: Served) -> None:
    settings = served.platform.secret_settings
    data = base64.b64encode(b"x" * settings.size_limit_bytes).decode()
    for name in ("a", "b", "c"):
        await create(served.member, name, data)
    answer = await served.member.call("POST", "/api/v1/jobs", job("large", secrets=["a", "b", "c"]))
    assert answer.status == 400
    assert "secrets.per_job_bytes" in answer.json()["allowed"]
    await create(served.member, "c", DATA, replace=True)
    answer = await served.member.call("POST", "/api/v1/jobs", job("large", secrets=["a", "c"]))
    assert answer.status == 201, answer.text
    many = [f"c=V{number}" for number in range(settings.per_job + 1)]
    answer = await served.member.call("POST", "/api/v1/jobs", job("many", secrets=many))
    assert (answer.status, answer.json()["field"]) == (400, "secrets")
    with pytest.raises(SecretProblem, match="1048595 bytes"):
        served.platform.secrets.values("default", ["a", "b", "c"])


async def test_a_job_may_ask_only_for_secrets_of_its_own_organisation(served: Served) -> None:
    await create(served.stranger, "theirs")
    await create(served.member, "hf-token")
    foreign = await served.member.call("POST", "/api/v1/jobs", job("a", secrets=["theirs"]))
    missing = await served.member.call("POST", "/api/v1/jobs", job("a", secrets=["nobody"]))
    assert foreign.status == missing.status == 400
    assert foreign.text.replace("theirs", "nobody") == missing.text
    near = await served.member.call("POST", "/api/v1/jobs", job("a", secrets=["hf-tokn"]))
    assert "Did you mean hf-token?" in near.json()["hint"]
    swapped = await served.member.call("POST", "/api/v1/jobs", job("a", secrets=["HF=hf-token"]))
    assert "Did you mean hf-token=HF?" in swapped.json()["hint"]
    taken = await served.member.call(
        "POST", "/api/v1/jobs", job("a", secrets=["hf-token", "hf-token=HF_TOKEN"])
    )
    assert taken.status == 201, taken.text
    assert taken.json()["spec"]["secrets"] == ["hf-token", "hf-token=HF_TOKEN"]


@pytest.mark.parametrize(
    "secret",
    [
        "../etc/passwd", "db/../x", "DB", "", "db=", "db=LD_PRELOAD", "db=LD_LIBRARY_PATH", "db=CLOUDML_JOB_ID",
        "db=PATH", "db=PYTHONPATH", "db=BASH_ENV", "db=A-B", "db=A=B", "db=GLIBC_TUNABLES", 7, None,
    ],
)  # fmt: skip
async def test_names_that_would_leave_the_folder_or_break_the_start_are_refused(
    served: Served, secret: Any
) -> None:
    await create(served.member)
    for path, document in (
        ("/api/v1/jobs", job("a", secrets=[secret])),
        ("/api/v1/models", {"model_name": "m", "model_version": "v1", "model_uri": "fds://cloudml/m",
                            "secrets": [secret]}),
    ):  # fmt: skip
        answer = await served.member.call("POST", path, document)
        assert answer.status == 400, answer.text
        assert answer.json()["field"].startswith("secrets")


async def test_two_secrets_cannot_have_one_place(served: Served) -> None:
    await create(served.member)
    await create(served.member, "other")
    answer = await served.member.call(
        "POST", "/api/v1/jobs", job("a", secrets=["db=TOKEN", "other=TOKEN"])
    )
    assert answer.status == 400
    assert "both set the variable TOKEN" in answer.json()["message"]
    document = job("a", secrets=["db=TOKEN"], environment={"TOKEN": "x"})
    answer = await served.member.call("POST", "/api/v1/jobs", document)
    assert (answer.status, answer.json()["allowed"]) == (400, "TOKEN in one of the two")


async def test_what_is_not_text_is_a_file_and_no_variable(served: Served) -> None:
    await create(served.member, data=base64.b64encode(b"\xff\0").decode())
    answer = await served.member.call("POST", "/api/v1/jobs", job("a", secrets=["db=DB"]))
    assert (answer.status, answer.json()["allowed"]) == (
        400,
        "db, which is the file /run/secrets/db",
    )
    assert (
        await served.member.call("POST", "/api/v1/jobs", job("a", secrets=["db"]))
    ).status == 201


async def test_without_the_sealing_key_secrets_are_unreadable_and_all_else_works(
    served: Served,
) -> None:
    await create(served.member)
    served.sealer.key = False
    listed = await served.member.call("GET", "/api/v1/secrets")
    assert [one["state"] for one in listed.json()["items"]] == ["Unreadable"]
    assert (await create(served.member, "more")).status == 503
    assert (
        await served.member.call("POST", "/api/v1/jobs", job("a", secrets=["db"]))
    ).status == 201
    assert (await served.member.call("DELETE", "/api/v1/secrets/db")).status == 200


async def test_secrets_go_with_their_organisation(served: Served) -> None:
    platform = served.platform
    gone = platform.identities.create_organisation("gone")
    member = served.as_caller(platform.identities.create_key(gone, "ada"))
    await create(member)
    await create(served.member)
    await served.admin.call("PATCH", "/api/v1/admin/orgs/gone", {"enabled": False})
    assert (await served.admin.call("DELETE", "/api/v1/admin/orgs/gone")).status == 200
    assert [line.key.org for line in served.store.list(SECRET).items] == ["default"]


async def test_a_deletion_that_a_crash_cut_off_is_a_deletion(served: Served) -> None:
    await create(served.member)
    [line] = served.store.list(SECRET, org="default").items
    served.store.request_delete(SECRET, line.key.uid, now=served.clock())
    assert json.loads((await served.member.call("GET", "/api/v1/secrets")).text) == {"items": []}
    assert (await served.member.call("GET", "/api/v1/secrets/db")).status == 404
    assert (await create(served.member)).status == 201


async def test_a_file_is_refused_at_submission_where_the_engine_has_none(served: Served) -> None:
    await create(served.member)
    served.engine.no_secret_files = "this machine has no sandbox"
    requests = (
        ("/api/v1/jobs", job("a", secrets=["db"])),
        ("/cloud_ml/v1/train", job("a", secrets=["db"])),
        (
            "/api/v1/models",
            {
                "model_name": "m",
                "model_version": "v1",
                "model_uri": "fds://cloudml/m",
                "secrets": ["db"],
            },
        ),
    )
    for path, document in requests:
        ask = served.member.original if "cloud_ml" in path else served.member.call
        answer = await ask("POST", path, document)
        assert answer.status == 400, answer.text
        assert "this machine has no sandbox" in answer.json()["message"]
        assert "db=DB" in answer.text
    assert (
        await served.member.call("POST", "/api/v1/jobs", job("a", secrets=["db=DB"]))
    ).status == 201


async def test_a_secret_names_what_uses_it(served: Served) -> None:
    for name in ("db", "other"):
        await create(served.member, name)
    for name, secrets in (("b", ["db=DB"]), ("a", ["db", "other"]), ("c", ["other"])):
        assert (
            await served.member.call("POST", "/api/v1/jobs", job(name, secrets=secrets))
        ).status == 201
    model = {
        "model_name": "m",
        "model_version": "v1",
        "model_uri": "fds://cloudml/m",
        "save_mode": True,
    }
    assert (
        await served.member.call("POST", "/api/v1/models", {**model, "secrets": ["db=KEY"]})
    ).status == 201
    await create(served.stranger)
    view = (await served.member.call("GET", "/api/v1/secrets/db")).json()
    assert (view["used_by"][0], sorted(view["used_by"][1:])) == (
        "model service m/v1",
        ["job a", "job b"],
    )
    assert (await served.stranger.call("GET", "/api/v1/secrets/db")).json()["used_by"] == []
    await served.member.call("DELETE", "/api/v1/jobs/b")
    view = (await served.member.call("GET", "/api/v1/secrets/db")).json()
    assert view["used_by"] == ["model service m/v1", "job a"]
