"""An organisation has so many jobs and services and no more; others do not notice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

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
        answer = await served.member.call("POST", "/api/v1/jobs", served.job(job_name=f"j{number}", save_mode=True))
        assert answer.status == 201
    refused = await served.member.call("POST", "/api/v1/jobs", served.job(job_name="more", save_mode=True))
    assert (refused.status, refused.json()["code"]) == (403, "quota_exceeded")
    assert "api.records_per_org" in refused.json()["allowed"]
    assert (await served.member.call("DELETE", "/api/v1/jobs/j0")).status == 202
    assert (await served.member.call("GET", "/api/v1/jobs/j1")).status == 200


async def test_saved_services_without_end(served: Served) -> None:
    def service(number: int) -> dict[str, object]:
        return {
            "model_name": "m", "model_version": f"v{number}", "model_uri": "fds://cloudml/m", "save_mode": True
        }  # fmt: skip

    statuses = [
        (await served.member.call("POST", "/api/v1/models", service(number))).status for number in range(FEW + 1)
    ]
    assert statuses == [201] * FEW + [403]


async def test_a_service_that_is_changed_without_end(served: Served) -> None:
    """Its events do not fill the database, and the newest of them are the ones that are told."""
    service = {"model_name": "m", "model_version": "v1", "model_uri": "fds://cloudml/m", "save_mode": True}
    assert (await served.member.call("POST", "/api/v1/models", service)).status == 201
    (record,) = served.store.list(MODEL_SERVICE).items
    many = rules.RETENTION.record_events
    for number in range(many):
        served.store.add_event(record.key.uid, Event(served.clock(), "Tried", str(number)))
    changed = await served.member.call("PATCH", "/api/v1/models/m/v1", {"environment": {"EPOCHS": "4"}})
    assert changed.status == 200, changed.text
    told = (await served.member.call("GET", "/api/v1/models/m/v1/events")).json()["items"]
    assert len(told) == many
    assert "Tried" not in told[-1]["reason"]
