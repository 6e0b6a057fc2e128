"""Optuna's client in a job: the job's token opens the studies of the job, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from cloud_ml.api.job_endpoint import JobEndpoint
from cloud_ml.api.optuna import wire
from cloud_ml.api.optuna.methods import READS, WRITES
from cloud_ml.api.optuna.wire import Message
from cloud_ml.domain.studies.optuna_records import STUDY_LABEL_OF_JOBS
from cloud_ml.domain.workloads.phases import Phase
from support.asgi import Answer, AsgiClient
from support.platform import Caller, Served

pytestmark = pytest.mark.anyio
SPACE = {"lr": {"min": 0.1, "max": 0.9, "type": "double"}}


class OptunaJob:
    """A job whose code calls by a proxy."""

    def __init__(
        self, served: Served, uid: str, attempt: int = 1, *, sandboxed: bool = True
    ) -> None:
        self.uid = uid
        self._token = served.platform.job_tokens.make(uid, attempt)
        app = JobEndpoint(served.client.app, None, sandboxed=sandboxed)
        self._client = AsgiClient(app)

    async def ask(self, method: str, message: bytes = b"") -> Answer:
        proof = {"Authorization": f"Bearer {self._token}"}
        return await self._client.send("POST", f"/api/v1/optuna/{method}", proof, message)

    async def study(self, name: str) -> int:
        answer = await self.ask("CreateNewStudy", wire.integers(1, [0]) + wire.text(2, name))
        assert answer.status == 200, answer.text
        return Message(answer.body).integer(1)

    async def names(self) -> list[str]:
        answer = await self.ask("GetAllStudies")
        assert answer.status == 200, answer.text
        return [one.text(2) for one in Message(answer.body).messages(1)]


async def running(served: Served, caller: Caller | None = None, **fields: Any) -> str:
    """The uid of a job whose first attempt runs."""
    uid = str((await served.submitted(caller, **fields))["uid"])
    for phase in (Phase.STARTING, Phase.RUNNING):
        served.move(uid, phase)
    return uid


async def test_a_job_uses_the_studies_that_it_has_made(served: Served) -> None:
    job, other = [OptunaJob(served, await running(served)) for _ in range(2)]
    number = await job.study("rates")
    assert (
        await job.ask("CreateNewTrial", wire.integer(1, number) + wire.integer(3, 1))
    ).status == 200
    assert (await job.names(), await other.names()) == (["rates"], [])
    answer = await other.ask("GetStudyIdFromName", wire.text(1, "rates"))
    assert answer.status == 403
    refusal = answer.json()
    assert "This job may not use the study rates" in refusal["message"]
    assert f"--label {STUDY_LABEL_OF_JOBS}=rates" in refusal["hint"]
    assert (await other.ask("GetStudyIdFromName", wire.text(1, "none"))).status == 404


async def test_no_method_opens_the_study_of_another_job(served: Served) -> None:
    job, other = [OptunaJob(served, await running(served)) for _ in range(2)]
    number = await job.study("rates")
    message = wire.integer(1, number) + wire.integer(3, 1)
    trial = Message((await job.ask("CreateNewTrial", message)).body).integer(1)
    alone = {"GetAllStudies", "CreateNewStudy", "GetStudyIdFromName"}
    of_trials = {name for name in {*READS, *WRITES} if name.startswith(("SetTrial", "GetTrial"))}
    by_trial = of_trials - {"GetTrialIdFromStudyIdTrialNumber", "GetTrials"}
    for method in {*READS, *WRITES} - alone:
        subject = trial if method in by_trial else number
        answer = await other.ask(method, wire.integer(1, subject))
        assert answer.status == 403, (method, answer.status, answer.text)
    assert await job.names() == ["rates"]


async def test_the_next_attempt_goes_on_with_its_study(served: Served) -> None:
    job = OptunaJob(served, await running(served))
    number = await job.study("rates")
    served.move(job.uid, Phase.RESTARTING, attempt=2)
    served.move(job.uid, Phase.STARTING)
    served.clock.advance(60)
    assert (await job.ask("GetAllStudies")).status == 401
    second = OptunaJob(served, job.uid, attempt=2)
    answer = await second.ask("GetStudyIdFromName", wire.text(1, "rates"))
    assert Message(answer.body).integer(1) == number


async def test_a_label_names_the_study_of_another(served: Served) -> None:
    first = OptunaJob(served, await running(served))
    await first.study("rates")
    await first.study("My study")
    labels = {STUDY_LABEL_OF_JOBS: "rates"}
    job = OptunaJob(served, await running(served, labels=labels))
    assert await job.names() == ["rates"]
    assert (await job.ask("GetStudyIdFromName", wire.text(1, "rates"))).status == 200
    assert (await job.ask("GetStudyIdFromName", wire.text(1, "My study"))).status == 403
    assert (await first.names(), await job.names()) == (["rates", "My study"], ["rates"])


async def test_studies_of_trials_as_jobs_are_no_jobs_own(served: Served) -> None:
    job = OptunaJob(served, await running(served, labels={STUDY_LABEL_OF_JOBS: "asked"}))
    document = {"name": "asked", "space": SPACE, "objective": "loss:min", "local": True}
    made = await served.admin.call("POST", "/api/v1/studies", document)
    assert made.status == 201, made.text
    answer = await job.ask("GetStudyIdFromName", wire.text(1, "asked"))
    assert answer.status == 403
    assert await job.names() == []


async def test_without_sandboxes_it_is_absent_and_says_why(served: Served) -> None:
    job = OptunaJob(served, await running(served), sandboxed=False)
    for method in ("GetAllStudies", "CreateNewStudy"):
        answer = await job.ask(method)
        assert answer.status == 403
        assert "jobs of this server have no sandbox" in answer.json()["message"]


async def test_the_token_opens_no_other_operation_of_studies(served: Served) -> None:
    job = OptunaJob(served, await running(served))
    for path in ("/api/v1/studies", "/api/v1/optuna/../studies", "/api/v1/optuna//studies"):
        proof = {"Authorization": f"Bearer {job._token}"}
        assert (await job._client.send("GET", path, proof)).status in (404, 405), path
