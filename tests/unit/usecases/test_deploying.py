from __future__ import annotations

from typing import Any

import pytest

from cloud_ml.domain.jobs.kind import TrainJobRecord
from cloud_ml.domain.quotas import Limits, QuotaSpec
from cloud_ml.domain.records import EventType
from cloud_ml.domain.services.kind import MODEL_SERVICE
from cloud_ml.domain.services.releases import change_fields
from cloud_ml.engines.base import Capacity
from cloud_ml.errors import InvalidRequest
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.usecases.models.deploying import Deployments, service_of
from support.platform import TRAINER, Served

URI = "fds://cloudml/linear"
DEPLOYMENT = {"model_name": "linear", "model_version": "v1"}


@pytest.fixture
def served() -> Any:
    served = Served()
    yield served
    served.close()


def submit(served: Served, name: str = "train", **fields: Any) -> TrainJobRecord:
    job = TrainJob(name, "trainer.task", TRAINER, **fields)
    return served.platform.jobs.submit(served.admin.identity, job, Capacity(4000, 2**33))


def services(served: Served) -> list[Any]:
    lines = served.store.list(MODEL_SERVICE, org="default").items
    return [served.store.get(MODEL_SERVICE, line.key.uid) for line in lines]


@pytest.mark.parametrize(
    "fields",
    [
        {"model_export_path": URI},
        {"model_export_path": f"{URI}/"},
        {"model_export_path": f"{URI}/3"},
        {"job_args": ["--model_path", URI]},
        {"job_args": f"--data=fds://cloudml/data --export_dir={URI}/1"},
        {"output_path": URI, "job_args": "--model_dir=here"},
    ],
)
def test_where_a_job_exports_to(served: Served, fields: dict[str, Any]) -> None:
    job = submit(served, **DEPLOYMENT, **fields)
    made = service_of(job.spec)
    assert made is not None
    assert (made.model_name, made.model_version, made.model_uri) == ("linear", "v1", URI)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"model_name": "linear", "model_export_path": URI}, "model_version"),
        ({"model_version": "v1", "model_export_path": URI}, "model_name"),
        (DEPLOYMENT, "model_export_path"),
        ({**DEPLOYMENT, "job_args": "--model_path=/tmp/model"}, "model_export_path"),
        ({"model_name": "Linear!", "model_version": "v1", "model_export_path": URI}, "model_name"),
        ({**DEPLOYMENT, "model_export_path": "fds://B/x"}, "model_uri"),
    ],
)
def test_what_could_not_be_served_is_refused_at_once(
    served: Served, fields: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        submit(served, **fields)
    assert refused.value.field == field


def test_a_service_is_made_once(served: Served) -> None:
    job, deployments = (
        submit(served, **DEPLOYMENT, model_export_path=URI),
        Deployments(served.store, served.clock),
    )
    events = [deployments.deploy(job) for _ in range(2)]
    assert events[0] == events[1]
    assert events[0] is not None
    assert (events[0].reason, events[0].message) == (
        "Deployed",
        "linear v1 serves fds://cloudml/linear",
    )
    (service,) = services(served)
    assert (service.owner, service.spec.submitted.model_uri) == (job.owner, URI)
    assert [one.message for one in served.store.events(service.key.uid)] == [
        "created by job train, which exported the model"
    ]


def test_a_job_makes_no_service_that_the_quota_has_no_room_for(served: Served) -> None:
    quota = QuotaSpec(model=Limits(count=1))
    deployments = Deployments(served.store, served.clock, quota_of=lambda _: quota)
    first = deployments.deploy(submit(served, "one", **DEPLOYMENT, model_export_path=URI))
    assert first is not None
    assert first.reason == "Deployed"
    more = DEPLOYMENT | {"model_version": "v2"}
    event = deployments.deploy(submit(served, "two", **more, model_export_path=URI))
    assert event is not None
    assert (event.reason, event.type) == ("NotDeployed", EventType.WARNING)
    assert "the quota of model services: 1 of 1 are there" in event.message
    assert len(services(served)) == 1
    again = deployments.deploy(
        submit(served, "three", **DEPLOYMENT, model_export_path="fds://cloudml/better")
    )
    assert again is not None
    assert again.reason == "Deployed", "what is there already is changed"


def test_the_next_job_brings_the_next_model(served: Served) -> None:
    deployments = Deployments(served.store, served.clock)
    first, same, other = (
        submit(served, name, **DEPLOYMENT, model_export_path=uri)
        for name, uri in (("one", URI), ("two", URI), ("three", "fds://cloudml/better"))
    )
    deployments.deploy(first)
    deployments.deploy(same)
    (service,) = services(served)
    assert service.spec.template == 1, (
        "its replicas find a new version below the same folder by themselves"
    )
    deployments.deploy(other)
    (service,) = services(served)
    assert (service.spec.submitted.model_uri, service.spec.template) == ("fds://cloudml/better", 2)


def test_a_job_does_not_change_what_is_served_while_something_is_tried(served: Served) -> None:
    deployments = Deployments(served.store, served.clock)
    deployments.deploy(submit(served, "one", **DEPLOYMENT, model_export_path=URI))
    (service,) = services(served)
    tried = change_fields(service.spec, {"memory_limit": "1G"}, 10)
    served.store.change_spec(MODEL_SERVICE, service.key.uid, lambda _: tried, now=served.clock())
    event = deployments.deploy(
        submit(served, "two", **DEPLOYMENT, model_export_path="fds://cloudml/better")
    )
    assert event is not None
    assert (event.reason, event.type) == ("NotDeployed", EventType.WARNING)
    assert "release 2 is being tried beside what is served" in event.message
    assert services(served)[0].spec == tried


def test_a_job_that_asks_for_no_service_makes_none(served: Served) -> None:
    assert (
        Deployments(served.store, served.clock).deploy(submit(served, model_export_path=URI))
        is None
    )
    assert services(served) == []
