"""Studies of the original wire, as its client uses them."""

from __future__ import annotations

from typing import Any

import pytest

from cloud_ml.domain.jobs.kind import TRAIN_JOB
from support.event_files import SLIDE
from support.platform import TRAINER, Served
from support.surface import hp, trial_of

pytestmark = pytest.mark.anyio

HP = "/cloud_ml/v1/hp"
READ = (
    "org_id", "org_name", "hp_name", "module_name", "trainer_uri", "job_args", "fds_endpoint",
    "fds_bucket", "hdfs_krb_account", "hdfs_endpoint", "cpu_limit", "memory_limit", "gpu_limit",
    "docker_image", "docker_command", "framework", "framework_version", "state", "create_time",
    "update_time", "volume_type", "volume_path", "mount_path", "mount_read_only",
    "prepare_command", "finish_command", "owner", "optimization_type", "objectivevalue_name",
    "metrics_names", "parametertype_configs", "suggestion_algorithm", "request_number",
)  # fmt: skip
"""What the client reads of a document: it fails where a key is missing."""


async def submitted(served: Served, **fields: Any) -> dict[str, Any]:
    answer = await served.member.original("POST", HP, {**hp("rates"), **fields})
    assert answer.status == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


async def test_a_study_is_submitted_described_and_listed(served: Served) -> None:
    made = await submitted(
        served, objectivevalue_name="loss", suggestion_algorithm="random", request_number=4
    )
    assert [key for key in READ if key not in made] == []
    assert {key: made[key] for key in ("hp_name", "state", "owner", "optimization_type")} == {
        "hp_name": "rates", "state": "running", "owner": made["owner"],
        "optimization_type": "minimize",
    }  # fmt: skip
    assert made["parametertype_configs"] == [
        {"name": "lr", "parametertype": "double", "feasible": {"min": 0.1, "max": 0.2}}
    ]
    assert (made["objectivevalue_name"], made["metrics_names"]) == ("loss", ["loss"])
    assert (made["suggestion_algorithm"], made["request_number"]) == ("random", 4)
    assert (await served.member.original("GET", f"{HP}/rates")).json() == made
    (row,) = (await served.member.original("GET", HP)).json()["data"]
    assert (row["hp_name"], row["state"]) == ("rates", "running")
    assert all(isinstance(value, str) for value in row.values())
    everyone = await served.admin.original("GET", f"{HP}?org_id=-1")
    assert [row["hp_name"] for row in everyone.json()["data"]] == ["rates"]
    nothing = {"data": [], "best_trial": {}}
    assert (await served.member.original("GET", f"{HP}/rates/trials")).json() == nothing
    used = (await served.member.original("GET", f"{HP}/rates/metrics")).json()
    assert used == {"cpu": 0, "memory": 0, "network_receive": 0, "network_transmit": 0}


async def test_the_block_of_the_slide_is_taken_here_too(served: Served) -> None:
    block = SLIDE["hyperparameters"]
    made = await submitted(served, parametertype_configs=None, hyperparameters=block)
    assert (made["suggestion_algorithm"], made["request_number"]) == ("grid", 4)
    assert made["objectivevalue_name"] == "training/hptuning/metric"
    kinds = {one["name"]: one for one in made["parametertype_configs"]}
    assert kinds["learning_rate"]["feasible"] == {"list": [0.1, 0.5]}
    assert kinds["optimizer"]["parametertype"] == "categorical"


async def test_a_field_that_is_not_known_is_told_by_an_event(served: Served) -> None:
    await submitted(served, nas_config={})
    events = (await served.member.original("GET", f"{HP}/rates/events")).json()["events"]
    assert [(one["type"], one["reason"]) for one in events] == [
        ("Normal", "Created"),
        ("Warning", "FieldIgnored"),
    ]


async def test_the_log_of_a_trial_by_its_number_and_by_its_name(served: Served) -> None:
    await submitted(served)
    uid = (await served.member.call("GET", "/api/v1/studies/rates")).json()["uid"]
    await trial_of(served, uid, "rates-hp-0")
    for trial in ("0", "rates-hp-0"):
        answer = await served.member.original("GET", f"{HP}/rates/{trial}/logs")
        assert (answer.status, answer.json()) == (200, {"logs": ""})
    await served.submitted(job_name="rates-hp-1")
    for absent in ("1", "rates-hp-1", "7", "x", "-1", "%D9%A1", "9" * 300, "rates"):
        answer = await served.member.original("GET", f"{HP}/rates/{absent}/logs")
        assert (answer.status, answer.json()["error"]) == (404, True), absent
    wrong = await served.member.original("GET", f"{HP}/rates/0/logs?lines=x")
    assert (wrong.status, wrong.json()["error"]) == (400, True)


async def test_a_study_is_deleted(served: Served) -> None:
    await submitted(served)
    deleted = (await served.member.original("DELETE", f"{HP}/rates")).json()
    assert (deleted["hp_name"], deleted["state"]) == ("rates", "deleting")
    described = (await served.member.original("GET", f"{HP}/rates")).json()
    assert described["state"] == "deleting"


async def test_the_administrators_tool_deletes_a_study_as_a_train_job(served: Served) -> None:
    """Its ``hp delete`` asks for the removal of a train job of that name."""
    await submitted(served)
    deleted = await served.admin.original("DELETE", "/cloud_ml/v1/train/rates?org_id=1")
    assert deleted.json()["state"] == "deleting"
    assert (await served.member.original("GET", f"{HP}/rates")).json()["state"] == "deleting"


@pytest.mark.parametrize("rest", ["", "/trials", "/events", "/metrics", "/0/logs"])
async def test_what_is_absent_or_foreign_is_refused_alike(served: Served, rest: str) -> None:
    await submitted(served)
    answers = {
        name: await served.stranger.original("GET", f"{HP}/{name}{rest}")
        for name in ("rates", "never")
    }
    assert {answer.status for answer in answers.values()} == {404}
    assert len({answer.text.replace(name, "N") for name, answer in answers.items()}) == 1
    assert all(answer.json()["error"] is True for answer in answers.values())


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"hp_name": "Rates"}, "name"),
        ({"trainer_uri": ""}, "trainer_uri"),
        ({"save_mode": True}, "save_mode"),
        ({"suggestion_algorithm": "magic"}, "algorithm"),
        ({"cpu_limit": "half"}, "cpu_limit"),
        ({"request_number": 0}, "max_trials"),
        ({"docker_image": "tf:1"}, "docker_image"),
    ],
)
async def test_what_is_wrong_is_refused_by_name_in_one_line(
    served: Served, wrong: dict[str, Any], field: str
) -> None:
    answer = await served.member.original("POST", HP, {**hp("rates"), **wrong})
    assert (answer.status, answer.json()["error"]) == (400, True), answer.text
    assert field in answer.json()["message"]
    assert "\n" not in answer.text
    assert (await served.member.original("GET", HP)).json() == {"data": []}


async def test_a_saved_trial_is_refused_because_it_would_never_end(served: Served) -> None:
    job = {"module_name": "trainer.task", "trainer_uri": TRAINER, "save_mode": True}
    request = {"name": "saved", "job": job, "space": {"lr": [1, 2]}}
    answer = await served.member.call("POST", "/api/v1/studies", request)
    assert (answer.status, answer.json()["field"]) == (400, "job.save_mode")
    assert served.store.find(TRAIN_JOB, "default", "saved-hp-0") is None
