"""A service that failed holds nothing, and is replaced by deploying it again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cloud_ml.domain.quotas import Limits, QuotaSpec
from cloud_ml.domain.services.kind import MODEL_SERVICE, ServiceRecord
from cloud_ml.domain.services.status import FailedRelease, ServicePhase
from cloud_ml.domain.workloads.spec import Desired
from cloud_ml.engines.base import Capacity
from cloud_ml.errors import AlreadyExists, CloudMlError, QuotaExceeded
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.models.services.model_service import ModelService
from cloud_ml.models.services.service import ServiceUpdate
from cloud_ml.usecases import usage
from cloud_ml.usecases.models.deploying import Deployments
from cloud_ml.usecases.models.model_services import ModelServices
from cloud_ml.usecases.record_limits import RecordLimits
from support.platform import TRAINER, Served

NAME = ("m", "v1")
JUNK, BETTER = (ModelService(*NAME, f"fds://cloudml/{folder}") for folder in ("junk", "better"))


@pytest.fixture
def services(served: Served) -> ModelServices:
    quota = QuotaSpec(model=Limits(count=1))
    return ModelServices(
        served.store, served.platform.storage, served.clock, quota_of=lambda _: quota
    )


def fail(served: Served, record: ServiceRecord) -> ServiceRecord:
    """As the controller does when the model cannot be loaded."""
    failed = replace(
        record.status,
        phase=ServicePhase.FAILED,
        port=8600,
        failed=(FailedRelease(record.spec.template, "ModelLoadFailed", "it is junk"),),
    )
    return served.store.commit_status(
        MODEL_SERVICE,
        record.key.uid,
        failed,
        expected_revision=record.revision,
        fence=None,
        now=served.clock(),
    )


def test_deploying_again_replaces_it_with_a_new_release(
    served: Served, services: ModelServices
) -> None:
    caller = served.admin.identity
    first = services.create(caller, JUNK)
    with pytest.raises(AlreadyExists):
        services.create(caller, BETTER)
    fail(served, first)
    again = services.create(caller, BETTER, idempotency_key="second", notes=["a note"])
    assert (again.key.uid, again.spec.template, again.spec.submitted) == (first.key.uid, 2, BETTER)
    assert again.generation > first.generation
    assert services.create(caller, BETTER, idempotency_key="second").spec == again.spec, (
        "the request was sent again"
    )
    fail(served, again)
    assert services.create(caller, BETTER, idempotency_key="second").spec == again.spec, (
        "also after it failed"
    )
    messages = [event.message for event in services.events(again)]
    assert messages[-2:] == [
        "deployed again by admin, in place of release 1, which failed",
        "a note",
    ]


def test_it_is_replaced_also_where_there_are_as_many_services_as_there_may_be(
    served: Served,
) -> None:
    """No record is added."""
    services = ModelServices(
        served.store,
        served.platform.storage,
        served.clock,
        records=RecordLimits(served.store, served.clock, most=1),
    )
    caller = served.admin.identity
    fail(served, services.create(caller, JUNK))
    assert services.create(caller, BETTER).spec.submitted == BETTER
    with pytest.raises(QuotaExceeded):
        services.create(caller, replace(BETTER, model_version="v2"))


def test_the_same_model_is_tried_again(served: Served, services: ModelServices) -> None:
    caller = served.admin.identity
    record = fail(served, services.create(caller, JUNK))
    requests: list[Any] = [
        lambda: services.create(caller, JUNK),
        lambda: services.want(caller.org, NAME, caller, Desired.RUN),
        lambda: services.update(caller.org, NAME, caller, ServiceUpdate(model_uri=JUNK.model_uri)),
        lambda: services.update(
            caller.org, NAME, caller, ServiceUpdate(model_uri=BETTER.model_uri)
        ),
    ]
    for ask in requests:
        after = ask()
        assert after.spec.template > record.spec.template
        record = fail(served, after)


def test_it_holds_no_quota_and_needs_room_when_it_is_tried_again(
    served: Served, services: ModelServices
) -> None:
    caller = served.admin.identity
    failed = fail(served, services.create(caller, JUNK))
    assert usage.services(served.store, caller.org) == []
    other = services.create(caller, ModelService("other", "v1", "fds://cloudml/other"))
    requests: list[Any] = [
        lambda: services.create(caller, BETTER),
        lambda: services.want(caller.org, NAME, caller, Desired.RUN),
        lambda: services.update(
            caller.org, NAME, caller, ServiceUpdate(model_uri=BETTER.model_uri)
        ),
    ]
    for ask in requests:
        with pytest.raises(QuotaExceeded):
            ask()
    assert served.store.get(MODEL_SERVICE, failed.key.uid) == failed
    fail(served, other)
    assert services.create(caller, BETTER).spec.template == 2


def test_a_job_that_exports_the_model_again_has_it_tried_again(
    served: Served, services: ModelServices
) -> None:
    caller = served.admin.identity
    failed = fail(served, services.create(caller, BETTER))
    job = TrainJob(
        "train",
        "trainer.task",
        TRAINER,
        model_name=NAME[0],
        model_version=NAME[1],
        model_export_path=BETTER.model_uri,
    )
    submitted = served.platform.jobs.submit(caller, job, Capacity(4000, 2**33))
    full, one = (lambda _, count=count: QuotaSpec(model=Limits(count=count)) for count in (0, 1))
    refused = Deployments(served.store, served.clock, quota_of=full).deploy(submitted)
    assert refused is not None
    assert refused.reason == "NotDeployed", (
        "one that failed is not counted, so there has to be room for it"
    )
    event = Deployments(served.store, served.clock, quota_of=one).deploy(submitted)
    assert event is not None
    assert event.reason == "Deployed"
    record = served.store.get(MODEL_SERVICE, failed.key.uid)
    assert record is not None
    assert record.spec.template == 2


def test_one_that_is_being_deleted_is_not_replaced(served: Served, services: ModelServices) -> None:
    caller = served.admin.identity
    fail(served, services.create(caller, JUNK))
    services.delete(caller.org, NAME, caller)
    with pytest.raises(CloudMlError):
        services.create(caller, BETTER)
