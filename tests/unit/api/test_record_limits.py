"""An organisation has so many jobs and services and no more; others do not notice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.records import Event
from cloud_ml.domain.services.kind import MODEL_SERVICE
from cloud_ml.settings import ApiSettings
from cloud_ml.state import rules
from support.platform import Served

pytestmark = pytest.mark.anyio
FEW = 3


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served(ApiSettings(records_per_org=FEW))
    yield served
    served.close()


async def test_saved_jobs_without_end(served: Served) -> None:
    for number in range(FEW):
        answer = await served.member.call(
            "POST", "/api/v1/jobs", served.job(job_name=f"j{number}", save_mode=True)
        )
        assert answer.status == 201
    refused = await served.member.call(
        "POST", "/api/v1/jobs", served.job(job_name="more", save_mode=True)
    )
    assert (refused.status, refused.json()["code"]) == (403, "quota_exceeded")
    assert "api.records_per_org" in refused.json()["allowed"]
    assert (await served.member.call("DELETE", "/api/v1/jobs/j0")).status == 202
    assert (await served.member.call("GET", "/api/v1/jobs/j1")).status == 200


async def test_saved_services_without_end(served: Served) -> None:
    def service(number: int) -> dict[str, object]:
        return {
            "model_name": "m",
            "model_version": f"v{number}",
            "model_uri": "fds://cloudml/m",
            "save_mode": True,
        }

    statuses = [
        (await served.member.call("POST", "/api/v1/models", service(number))).status
        for number in range(FEW + 1)
    ]
    assert statuses == [201] * FEW + [403]


async def test_a_request_that_is_sent_again_at_the_limit_is_answered_as_the_first_time(
    served: Served,
) -> None:
    """Its answer was lost, and it may have taken the last place itself."""
    job = served.job(job_name="j", save_mode=True)
    service = {
        "model_name": "m",
        "model_version": "v",
        "model_uri": "fds://cloudml/m",
        "save_mode": True,
    }
    for path, document, name in (
        ("/api/v1/jobs", job, "job_name"),
        ("/api/v1/models", service, "model_version"),
    ):
        for number in range(FEW):
            answer = await served.member.call(
                "POST",
                path,
                {**document, name: f"n{number}"},
                headers={"Idempotency-Key": f"k{number}"},
            )
            assert answer.status == 201, answer.text
        again = await served.member.call(
            "POST",
            path,
            {**document, name: f"n{FEW - 1}"},
            headers={"Idempotency-Key": f"k{FEW - 1}"},
        )
        assert (again.status, again.json()["uid"]) == (201, answer.json()["uid"])
        another = await served.member.call(
            "POST", path, {**document, name: "x"}, headers={"Idempotency-Key": "x"}
        )
        assert (another.status, another.json()["code"]) == (403, "quota_exceeded")


async def test_a_service_that_is_changed_without_end(served: Served) -> None:
    """Its events do not fill the database, and the newest of them are the ones that are told."""
    service = {
        "model_name": "m",
        "model_version": "v1",
        "model_uri": "fds://cloudml/m",
        "save_mode": True,
    }
    assert (await served.member.call("POST", "/api/v1/models", service)).status == 201
    (record,) = served.store.list(MODEL_SERVICE).items
    many = rules.RETENTION.record_events
    for number in range(many):
        served.store.add_event(record.key.uid, Event(served.clock(), "Tried", str(number)))
    changed = await served.member.call(
        "PATCH", "/api/v1/models/m/v1", {"environment": {"EPOCHS": "4"}}
    )
    assert changed.status == 200, changed.text
    events = (await served.member.call("GET", "/api/v1/models/m/v1/events")).json()["items"]
    assert len(events) == many
    assert "Tried" not in events[-1]["reason"]


@pytest.fixture
def roomy() -> Iterator[Served]:
    served = Served(ApiSettings(records_per_org=100))
    yield served
    served.close()


async def test_a_large_job_counts_as_many(roomy: Served) -> None:
    """A request of a megabyte becomes two of the database: half a million of them would be a
    terabyte.
    """
    large = roomy.job(save_mode=True, job_args=["x" * 65_000] * 8)
    answers = []
    for number in range(3):
        answers.append(
            await roomy.member.call("POST", "/api/v1/jobs", {**large, "job_name": f"l{number}"})
        )
        roomy.clock.advance(61)  # then what is stored is counted
    assert [answer.status for answer in answers] == [201, 403, 403]
    assert "counts as 64" in answers[2].json()["message"]
    assert (
        await roomy.member.call("POST", "/api/v1/jobs", roomy.job(save_mode=True))
    ).status == 201
    record = roomy.platform.jobs.find("default", "l0")
    roomy.store.delete(TRAIN_JOB, record.key.uid, fence=None)
    roomy.clock.advance(61)
    assert (
        await roomy.member.call("POST", "/api/v1/jobs", {**large, "job_name": "l3"})
    ).status == 201


async def test_a_service_that_grows_counts_as_many(served: Served) -> None:
    service = {
        "model_name": "m",
        "model_version": "v1",
        "model_uri": "fds://cloudml/m",
        "save_mode": True,
    }
    assert (await served.member.call("POST", "/api/v1/models", service)).status == 201
    large = {"environment": {f"A{number}": "x" * 4_000 for number in range(60)}}
    refused = await served.member.call("PATCH", "/api/v1/models/m/v1", large)
    assert (refused.status, refused.json()["code"]) == (403, "quota_exceeded")
    small = await served.member.call("PATCH", "/api/v1/models/m/v1", {"environment": {"A": "1"}})
    assert small.status == 200
