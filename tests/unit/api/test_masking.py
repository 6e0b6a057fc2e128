"""Variables whose names suggest a secret: no view shows their values, and a mask never becomes a
value.
"""

from __future__ import annotations

from typing import Any

import pytest

from cloud_ml.domain.audit import AuditFilter
from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.services.kind import MODEL_SERVICE
from cloud_ml.models.secrets.secret import MASK, looks_secret
from support.platform import TRAINER, Caller, Served

pytestmark = pytest.mark.anyio

VALUE = "hunter2-do-not-show"
VARIABLES = {
    "DB_PASSWORD": VALUE,
    "DATABASE_URL": f"postgres://me:{VALUE}@db:5432/x?a=b",
    "EPOCHS": "3",
}
SHOWN = {"DB_PASSWORD": MASK, "DATABASE_URL": f"postgres://me:{MASK}@db:5432/x?a=b", "EPOCHS": "3"}


def job(name: str, **more: Any) -> dict[str, Any]:
    return {"job_name": name, "module_name": "trainer.task", "trainer_uri": TRAINER, **more}


def service(**more: Any) -> dict[str, Any]:
    return {
        "model_name": "m",
        "model_version": "v1",
        "model_uri": "fds://cloudml/m",
        "save_mode": True,
        **more,
    }


def stored(served: Served, name: str) -> dict[str, str] | None:
    record = served.store.find(TRAIN_JOB, "default", name)
    assert record is not None
    return record.spec.submitted.environment


async def fetch_texts(caller: Caller, *targets: str) -> str:
    answers = [
        await (caller.original if "cloud_ml" in one else caller.call)("GET", one) for one in targets
    ]
    assert [answer.status for answer in answers] == [200] * len(targets)
    return "".join(answer.text for answer in answers)


async def test_no_view_of_a_job_shows_the_value(served: Served) -> None:
    made = await served.member.call("POST", "/api/v1/jobs", job("a", environment=VARIABLES))
    assert made.json()["spec"]["environment"] == SHOWN
    seen = await fetch_texts(
        served.admin,
        "/api/v1/jobs/a",
        "/api/v1/jobs?details=true",
        "/api/v1/jobs/a/events",
        "/cloud_ml/v1/train/a",
        "/cloud_ml/v1/train/a/events",
    )
    assert "--secret db-password=DB_PASSWORD" in seen
    assert VALUE not in seen + made.text + repr(served.store.audit(AuditFilter()))
    assert stored(served, "a") == VARIABLES


async def test_a_mask_that_is_submitted_is_refused(served: Served) -> None:
    for path, document in (
        ("/api/v1/jobs", job("a", environment=SHOWN)),
        ("/cloud_ml/v1/train", job("a", environment=SHOWN)),
        ("/api/v1/models", service(environment=SHOWN)),
    ):
        ask = served.member.original if "cloud_ml" in path else served.member.call
        answer = await ask("POST", path, document)
        assert answer.status == 400, answer.text
        assert answer.json()["field"] == "environment.DB_PASSWORD"
        assert "--secret db-password=DB_PASSWORD" in answer.json()["hint"]
    assert (
        await served.member.call("POST", "/api/v1/jobs", job("a", environment={"STARS": MASK}))
    ).status == 201


async def test_a_job_is_resubmitted_with_the_stored_value(served: Served) -> None:
    first = await served.member.call("POST", "/api/v1/jobs", job("a", environment=VARIABLES))
    for name, of in (("b", "a"), ("c", first.json()["uid"])):
        shown = {**SHOWN, "EPOCHS": "4"}
        again = await served.member.call(
            "POST", f"/api/v1/jobs?resubmit_of={of}", job(name, environment=shown)
        )
        assert again.status == 201, again.text
        assert VALUE not in again.text
        assert stored(served, name) == {**VARIABLES, "EPOCHS": "4"}
    for name, value in (
        ("API_TOKEN", MASK),
        ("DATABASE_URL", f"postgres://you:{MASK}@elsewhere/x"),
    ):
        refused = await served.member.call(
            "POST", "/api/v1/jobs?resubmit_of=a", job("d", environment={name: value})
        )
        assert (refused.status, refused.json()["field"]) == (400, f"environment.{name}")


async def test_a_job_of_another_organisation_lends_no_value(served: Served) -> None:
    first = await served.member.call("POST", "/api/v1/jobs", job("theirs", environment=VARIABLES))
    for name in ("theirs", first.json()["uid"]):
        foreign = await served.stranger.call(
            "POST", f"/api/v1/jobs?resubmit_of={name}", job("b", environment=SHOWN)
        )
        missing = await served.stranger.call(
            "POST", "/api/v1/jobs?resubmit_of=nobody", job("b", environment=SHOWN)
        )
        assert foreign.status == missing.status == 404
        assert foreign.text.replace(name, "nobody") == missing.text


async def test_a_service_keeps_its_value_over_updates_and_no_view_shows_it(served: Served) -> None:
    made = await served.member.call("POST", "/api/v1/models", service(environment=VARIABLES))
    assert made.json()["spec"]["environment"] == SHOWN
    changed = await served.member.call(
        "PATCH", "/api/v1/models/m/v1", {"environment": {**SHOWN, "EPOCHS": "4"}}
    )
    assert changed.json()["spec"]["environment"] == {**SHOWN, "EPOCHS": "4"}
    record = served.store.find(MODEL_SERVICE, "default", "m/v1")
    assert record is not None
    assert record.spec.submitted.environment == {**VARIABLES, "EPOCHS": "4"}
    refused = await served.member.call(
        "PATCH", "/api/v1/models/m/v1", {"environment": {"API_TOKEN": MASK}}
    )
    assert refused.status == 400
    seen = await fetch_texts(
        served.admin, "/api/v1/models/m/v1", "/api/v1/models", "/api/v1/models/m/v1/events"
    )
    assert VALUE not in seen + changed.text + repr(served.store.audit(AuditFilter()))


URL = "postgres://me:{}@db/x"
ARGUMENTS = [
    "--epochs",
    "3",
    "--password",
    VALUE,
    f"--api-key={VALUE}",
    URL.format(VALUE),
    "--max-tokens",
    "5",
]
ARGUMENTS_SHOWN = [
    "--epochs",
    "3",
    "--password",
    MASK,
    f"--api-key={MASK}",
    URL.format(MASK),
    "--max-tokens",
    "5",
]


def arguments(served: Served, name: str) -> list[str]:
    record = served.store.find(TRAIN_JOB, "default", name)
    assert record is not None
    return list(record.spec.workload.program.arguments)


@pytest.mark.parametrize("join", [list, " ".join])
async def test_no_view_of_a_job_shows_a_secret_argument(served: Served, join: Any) -> None:
    made = await served.member.call("POST", "/api/v1/jobs", job("a", job_args=join(ARGUMENTS)))
    assert made.json()["spec"]["job_args"] == join(ARGUMENTS_SHOWN)
    seen = await fetch_texts(
        served.admin,
        "/api/v1/jobs/a",
        "/api/v1/jobs?details=true",
        "/api/v1/jobs/a/events",
        "/cloud_ml/v1/train/a",
        "/cloud_ml/v1/train/a/events",
    )
    assert "--secret password=PASSWORD" in seen
    assert VALUE not in seen + made.text + repr(served.store.audit(AuditFilter()))
    assert arguments(served, "a") == ARGUMENTS


async def test_a_job_is_resubmitted_with_the_stored_arguments(served: Served) -> None:
    await served.member.call("POST", "/api/v1/jobs", job("a", job_args=ARGUMENTS))
    changed = ["--epochs", "4", *ARGUMENTS_SHOWN[2:]]
    again = await served.member.call(
        "POST", "/api/v1/jobs?resubmit_of=a", job("b", job_args=changed)
    )
    assert again.status == 201, again.text
    assert VALUE not in again.text
    assert arguments(served, "b") == ["--epochs", "4", *ARGUMENTS[2:]]
    elsewhere = "postgres://me:******@elsewhere/x"
    requests = [("/api/v1/jobs", changed), ("/cloud_ml/v1/train", changed)]
    requests += [
        ("/api/v1/jobs?resubmit_of=a", words)
        for words in (["--token", MASK], [f"--api_key={MASK}"], [elsewhere])
    ]
    for path, words in requests:
        ask = served.member.original if "cloud_ml" in path else served.member.call
        refused = await ask("POST", path, job("c", job_args=words))
        assert (refused.status, refused.json()["field"]) == (400, "job_args"), refused.text


COMMANDS = {
    "prepare_command": f"export HF_TOKEN='{VALUE}'\npip install {URL.format(VALUE)}",
    "finish_command": f"upload --password {VALUE} && upload --api-key $API_KEY",
}
COMMANDS_SHOWN = {
    "prepare_command": f"export HF_TOKEN={MASK}\npip install {URL.format(MASK)}",
    "finish_command": f"upload --password {MASK} && upload --api-key $API_KEY",
}


async def test_no_view_of_a_job_shows_a_secret_in_a_command(served: Served) -> None:
    made = await served.member.call("POST", "/api/v1/jobs", job("a", **COMMANDS))
    assert {field: made.json()["spec"][field] for field in COMMANDS} == COMMANDS_SHOWN
    seen = await fetch_texts(
        served.admin,
        "/api/v1/jobs/a",
        "/api/v1/jobs?details=true",
        "/api/v1/jobs/a/events",
        "/cloud_ml/v1/train/a",
        "/cloud_ml/v1/train/a/events",
    )
    assert "the values of HF_TOKEN, a URL, --password are not shown" in seen
    assert VALUE not in seen + made.text + repr(served.store.audit(AuditFilter()))


async def test_a_job_is_resubmitted_with_the_stored_commands(served: Served) -> None:
    await served.member.call("POST", "/api/v1/jobs", job("a", **COMMANDS))
    again = await served.member.call(
        "POST", "/api/v1/jobs?resubmit_of=a", job("b", **COMMANDS_SHOWN)
    )
    assert again.status == 201, again.text
    assert VALUE not in again.text
    record = served.store.find(TRAIN_JOB, "default", "b")
    assert record is not None
    workload = record.spec.workload
    assert {
        "prepare_command": workload.prepare_command,
        "finish_command": workload.finish_command,
    } == COMMANDS
    for field in COMMANDS:
        refused = await served.member.call(
            "POST", "/api/v1/jobs", job("c", **{field: COMMANDS_SHOWN[field]})
        )
        assert (refused.status, refused.json()["field"]) == (400, field), refused.text


async def test_no_view_of_a_service_shows_a_secret_in_a_command(served: Served) -> None:
    made = await served.member.call("POST", "/api/v1/models", service(**COMMANDS))
    assert {field: made.json()["spec"][field] for field in COMMANDS} == COMMANDS_SHOWN
    seen = await fetch_texts(
        served.admin,
        "/api/v1/models/m/v1",
        "/api/v1/models",
        "/api/v1/models/m/v1/events",
        "/cloud_ml/v1/model/m/v1",
    )
    assert VALUE not in seen + made.text + repr(served.store.audit(AuditFilter()))
    for field in COMMANDS:
        document = service(model_version="v2", **{field: COMMANDS_SHOWN[field]})
        refused = await served.member.call("POST", "/api/v1/models", document)
        assert (refused.status, refused.json()["field"]) == (400, field), refused.text


async def test_a_service_keeps_its_arguments_and_no_view_shows_them(served: Served) -> None:
    made = await served.member.call("POST", "/api/v1/models", service(model_args=ARGUMENTS))
    assert made.json()["spec"]["model_args"] == ARGUMENTS_SHOWN
    changed = await served.member.call(
        "PATCH", "/api/v1/models/m/v1", {"model_args": [*ARGUMENTS_SHOWN, "--more"]}
    )
    assert changed.json()["spec"]["model_args"] == [*ARGUMENTS_SHOWN, "--more"]
    record = served.store.find(MODEL_SERVICE, "default", "m/v1")
    assert record is not None
    assert record.spec.submitted.model_args == [*ARGUMENTS, "--more"]
    seen = await fetch_texts(
        served.admin,
        "/api/v1/models/m/v1",
        "/api/v1/models",
        "/api/v1/models/m/v1/events",
        "/cloud_ml/v1/model/m/v1",
    )
    assert VALUE not in seen + made.text + changed.text + repr(served.store.audit(AuditFilter()))
    for document in (service(model_version="v2", model_args=ARGUMENTS_SHOWN), None):
        path, verb = ("/api/v1/models", "POST") if document else ("/api/v1/models/m/v1", "PATCH")
        refused = await served.member.call(
            verb, path, document or {"model_args": ["--secret", MASK]}
        )
        assert (refused.status, refused.json()["field"]) == (400, "model_args"), refused.text


async def test_a_refused_value_is_not_repeated(served: Served) -> None:
    answer = await served.member.call(
        "POST", "/api/v1/jobs", job("a", environment={"DB_PASSWORD": VALUE + "\0"})
    )
    assert (answer.status, answer.json()["field"]) == (400, "environment.DB_PASSWORD")
    assert VALUE not in answer.text


@pytest.mark.parametrize(
    "name",
    ["PASSWORD", "DB_PASSWORD", "PGPASSWORD", "db_passwd", "MYSQL_PWD", "SMTP_PASS", "HF_TOKEN", "GITHUB_TOKEN",
     "WANDB_API_KEY", "OPENAI_APIKEY", "AWS_SECRET_ACCESS_KEY", "SECRET", "CLIENT_SECRET", "PRIVATE_KEY", "apiKey",
     "dbPassword", "AZURE_STORAGE_CONNECTION_STRING", "GOOGLE_CREDENTIALS", "AUTH_KEY", "JWT_SECRET_KEY"],
)  # fmt: skip
def test_names_that_suggest_a_secret(name: str) -> None:
    assert looks_secret(name)


@pytest.mark.parametrize(
    "name",
    ["EPOCHS", "PWD", "MAX_TOKENS", "NUM_TOKENS", "TOKENIZERS_PARALLELISM", "PAD_TOKEN_ID", "TOKENIZER", "KEYBOARD",
     "PASSES", "DB_PASSWORD_FILE", "TOKEN_URL", "MONKEY", "COMPASS", "PRIMARY_KEY", "CUDA_VISIBLE_DEVICES"],
)  # fmt: skip
def test_names_that_do_not(name: str) -> None:
    assert not looks_secret(name)
