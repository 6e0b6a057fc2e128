"""The MLflow endpoint as jobs reach it: only the token of a job of that network opens it, and only
what belongs to MLflow.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from cloud_ml.api.job_endpoint import JobEndpoint
from cloud_ml.auth import presigned
from cloud_ml.domain.tenancy import USER
from cloud_ml.domain.tracking.runs import ATTEMPT_TAG, PARENT_TAG
from cloud_ml.domain.workloads.phases import Phase
from support.asgi import Answer, AsgiClient
from support.platform import Caller, Served

pytestmark = pytest.mark.anyio
API = "/mlflow/api/2.0/mlflow"
FILES = "/mlflow/api/2.0/mlflow-artifacts/artifacts"


def number_of(caller: Caller) -> int:
    return caller.identity.organisation.number


async def running(served: Served, caller: Caller | None = None, **fields: Any) -> str:
    """The uid of a job whose first attempt runs."""
    uid = str((await served.submitted(caller, **fields))["uid"])
    for phase in (Phase.STARTING, Phase.RUNNING):
        served.move(uid, phase)
    return uid


class Job:
    """A job with its token, and the socket that it finds in its network."""

    def __init__(
        self,
        served: Served,
        uid: str,
        tenant: int | None,
        attempt: int = 1,
        reached_by: str = "",
    ) -> None:
        self.uid = uid
        self.token = served.platform.job_tokens.make(uid, attempt)
        endpoint = JobEndpoint(served.client.app, tenant, job_uid=reached_by)
        self.client = AsgiClient(endpoint)

    async def ask(self, method: str, path: str, document: Any = None, **headers: str) -> Answer:
        body = b"" if document is None else json.dumps(document).encode()
        proof = {"Authorization": f"Bearer {self.token}"}
        return await self.client.send(method, path, {**proof, **headers}, body)

    async def create_run(self, **fields: Any) -> Any:
        answer = await self.ask("POST", f"{API}/runs/create", fields)
        assert answer.status == 200, answer.text
        return answer.json()["run"]


@pytest.fixture
async def job(served: Served) -> Job:
    return Job(served, await running(served, job_name="one"), number_of(served.admin))


def tags_of(run: Any) -> dict[str, str]:
    return {one["key"]: one["value"] for one in run["data"]["tags"]}


async def test_the_first_run_is_that_of_the_job_and_others_are_its_children(
    served: Served, job: Job
) -> None:
    made = await job.ask("POST", f"{API}/experiments/create", {"name": "digits"})
    experiment = made.json()["experiment_id"]
    tags = [{"key": "team", "value": "vision"}]
    first = await job.create_run(experiment_id=experiment, run_name="x", tags=tags)
    assert first["info"]["run_id"] == job.uid
    assert (first["info"]["experiment_id"], first["info"]["run_name"]) == (experiment, "one")
    assert first["info"]["status"] == "RUNNING"
    found = tags_of(first)
    assert (found["team"], found[ATTEMPT_TAG], PARENT_TAG in found) == ("vision", "1", False)
    second = await job.create_run(experiment_id=experiment)
    third = await job.create_run(tags=[{"key": PARENT_TAG, "value": second["info"]["run_id"]}])
    assert tags_of(second)[PARENT_TAG] == job.uid
    assert tags_of(third)[PARENT_TAG] == second["info"]["run_id"]
    assert len({job.uid, second["info"]["run_id"], third["info"]["run_id"]}) == 3
    ended = {"run_id": job.uid, "status": "FINISHED", "end_time": 5}
    answer = await job.ask("POST", f"{API}/runs/update", ended)
    assert answer.json()["run_info"]["status"] == "RUNNING"
    metric = {"run_id": job.uid, "key": "loss", "value": 0.5, "timestamp": 1}
    assert (await job.ask("POST", f"{API}/runs/log-metric", metric)).status == 200
    shown = await served.admin.call("GET", f"/api/v1/runs/{job.uid}")
    assert shown.json()["metrics"] == {"loss": 0.5}


async def test_the_default_experiment_leaves_that_of_the_label(served: Served) -> None:
    uid = await running(served, labels={"experiment": "mine"})
    run = await Job(served, uid, None).create_run(experiment_id="0")
    named = await served.admin.call("GET", f"{API}/experiments/get-by-name?experiment_name=mine")
    assert run["info"]["experiment_id"] == named.json()["experiment"]["experiment_id"]


async def test_the_next_attempt_goes_on_with_the_run_of_the_job(served: Served, job: Job) -> None:
    assert (await job.create_run())["info"]["run_id"] == job.uid
    served.move(job.uid, Phase.RESTARTING, attempt=2)
    served.move(job.uid, Phase.STARTING)
    served.clock.advance(60)
    assert (await job.ask("POST", f"{API}/runs/create", {})).status == 401
    second = Job(served, job.uid, None, attempt=2)
    assert (await second.create_run())["info"]["run_id"] == job.uid
    assert (await second.create_run())["info"]["run_id"] != job.uid


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/jobs", "/api/v1/whoami", "/healthz", "/metrics", "/", "/mlflow", "//mlflow/x",
        "/cloud_ml/v1/train", "/cloudml/key", "/docs",
    ],
)  # fmt: skip
async def test_nothing_but_mlflow_is_there(served: Served, job: Job, path: str) -> None:
    assert (await job.ask("GET", path)).status == 404
    answer = await job.client.send("GET", path, served.admin.sign("GET", path))
    assert (answer.status, answer.json()["error_code"]) == (404, "ENDPOINT_NOT_FOUND")


@pytest.mark.parametrize("path", ["/mlflow/../api/v1/jobs", "/mlflow//api/v1/jobs", "/mlflow/x"])
async def test_a_path_does_not_leave_mlflow(served: Served, job: Job, path: str) -> None:
    for headers in ({}, served.admin.sign("GET", path)):
        answer = await job.client.send("GET", path, headers)
        assert answer.status in (401, 404), answer.text
        assert b"job_name" not in answer.body


async def test_no_other_proof_is_accepted(served: Served, job: Job) -> None:
    path = f"{API}/experiments/get?experiment_id=0"
    made = await served.admin.call(
        "POST", "/api/v1/tokens", {"scopes": ["runs:write"], "expires_in_s": 3600}
    )
    link = f"{path}&{presigned.KEY}=x&{presigned.EXPIRES}=9&{presigned.SIGNATURE}=y"
    proofs: list[tuple[str, dict[str, str]]] = [
        (path, {}),
        (link, {}),
        (path, served.admin.sign("GET", path)),
        (path, served.admin.sign_original(path)),
        (path, {"Authorization": f"Bearer {made.json()['token']}"}),
        (path, {"Authorization": "Basic YTpi"}),
        (path, {"Authorization": f"Bearer {job.token}", "X-Cloudml-Key": "a"}),
        ("/mlflow/object", {"Authorization": "Galaxy-V2 key:signature", "Date": "now"}),
    ]
    for target, headers in proofs:
        answer = await job.client.send("GET", target, headers)
        assert answer.status in (401, 404), (target, headers, answer.text)
    assert (await job.ask("GET", path)).status == 200


async def test_a_token_is_one_of_a_job_of_that_network(served: Served, job: Job) -> None:
    uri = "fds://others/trainers/linear-1.0.tar.gz"
    foreign = await running(served, served.stranger, trainer_uri=uri)
    at_ours = Job(served, foreign, number_of(served.admin))
    refused = await at_ours.ask("GET", f"{API}/experiments/get?experiment_id=0")
    assert refused.status == 401
    elsewhere = Job(served, foreign, number_of(served.stranger))
    path = f"{API}/runs/get?run_id={job.uid}"
    assert (await elsewhere.ask("GET", path)).json()["error_code"] == "RESOURCE_DOES_NOT_EXIST"
    assert (await elsewhere.ask("GET", f"{FILES}/{job.uid}/artifacts/a.txt")).status == 404


@pytest.mark.parametrize("change", ["mac", "uid", "attempt", "length"])
async def test_a_token_that_was_changed_is_refused(served: Served, job: Job, change: str) -> None:
    other = await running(served)
    scheme, uid, attempt, mac = job.token.split(".")
    flipped = ("B" if mac[0] == "A" else "A") + mac[1:]
    job.token = ".".join(
        {
            "mac": (scheme, uid, attempt, flipped),
            "uid": (scheme, other, attempt, mac),
            "attempt": (scheme, uid, "2", mac),
            "length": (scheme, uid, attempt, mac + "A"),
        }[change]
    )
    assert (await job.ask("POST", f"{API}/runs/create", {})).status == 401


async def test_a_token_ends_with_its_job(served: Served, job: Job) -> None:
    path = f"{API}/experiments/get?experiment_id=0"
    assert (await job.ask("GET", path)).status == 200
    served.move(job.uid, Phase.SUCCEEDED)
    served.clock.advance(60)
    answer = await job.ask("GET", path)
    assert (answer.status, answer.json()["error_code"]) == (401, "UNAUTHENTICATED")
    assert "over" in answer.json()["message"]


async def test_a_token_ends_with_the_rights_of_the_owner(served: Served) -> None:
    job = Job(served, await running(served, served.member), None)
    user = served.store.find(USER, served.member.identity.org, "mei")
    assert user is not None
    change = await served.admin.call("PATCH", "/api/v1/admin/users/mei", {"role": "viewer"})
    assert change.status == 200, change.text
    served.clock.advance(60)
    assert (await job.ask("POST", f"{API}/runs/create", {})).status == 403
    assert (await job.ask("GET", f"{API}/runs/get?run_id={job.uid}")).status == 200
    gone = await served.admin.call("PATCH", "/api/v1/admin/users/mei", {"enabled": False})
    assert gone.status == 200, gone.text
    served.clock.advance(60)
    assert (await job.ask("GET", f"{API}/runs/get?run_id={job.uid}")).status == 401


async def test_a_token_is_judged_before_a_body_is_read(served: Served, job: Job) -> None:
    def endless() -> Any:
        raise AssertionError("the body was read")
        yield b""

    for path in (f"{FILES}/{job.uid}/artifacts/a", f"{API}/runs/log-batch"):
        method = "PUT" if path.startswith(FILES) else "POST"
        proof = {"Authorization": "Bearer cmj1.a.1." + "x" * 43}
        assert (await job.client.send(method, path, proof, endless())).status == 401


async def test_a_token_works_nowhere_else(served: Served, job: Job) -> None:
    headers = {"Authorization": f"Bearer {job.token}"}
    for path in (f"{API}/experiments/get?experiment_id=0", "/api/v1/jobs"):
        answer = await served.client.send("GET", path, headers)
        assert answer.status == 401
        assert "of its job only" in answer.json()["message"]
    spoken = await served.client.send("GET", f"/api/v1/jobs?x={job.token}")
    assert spoken.status == 401
    assert job.token not in spoken.text


async def test_without_a_key_there_are_no_tokens(served: Served) -> None:
    served.platform.job_tokens._keys = tuple
    assert served.platform.job_tokens.make("a", 1) == ""


async def test_the_socket_of_a_job_takes_the_token_of_no_other(served: Served, job: Job) -> None:
    number = number_of(served.admin)
    assert (await Job(served, job.uid, number, reached_by=job.uid).create_run())["info"]
    stolen = Job(served, job.uid, number, reached_by=await running(served, job_name="other"))
    answer = await stolen.ask("POST", f"{API}/runs/create", {})
    assert answer.status == 401
