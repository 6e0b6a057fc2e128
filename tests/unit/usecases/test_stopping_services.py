"""A service is stopped with a grace time, which a later stop may shorten."""

from __future__ import annotations

import pytest

from cloud_ml.domain.services import spec as specs
from cloud_ml.domain.services.kind import REPLICA, ServiceRecord, parent_of_replicas
from cloud_ml.domain.workloads.phases import WorkloadStatus
from cloud_ml.domain.workloads.spec import Desired, change_workload
from cloud_ml.errors import InvalidRequest
from cloud_ml.models.services.model_service import ModelService
from support.platform import Served

NAME = ("m", "v1")


@pytest.fixture
def service(served: Served) -> ServiceRecord:
    return served.platform.services.create(
        served.admin.identity, ModelService(*NAME, "fds://cloudml/model")
    )


def _replica(served: Served, service: ServiceRecord, desired: Desired) -> str:
    name = f"{service.key.uid}-{desired}"
    spec = change_workload(
        specs.replica(service.spec.made_of(1)),
        lambda workload: workload.with_desired(desired),
    )
    record = served.store.create(
        REPLICA,
        org=service.key.org,
        name=name,
        owner="admin",
        spec=spec,
        status=WorkloadStatus(),
        now=served.clock(),
        parent=parent_of_replicas(service.key.uid),
    )
    return record.key.uid


def test_a_stop_names_a_grace_time_and_a_start_forgets_it(
    served: Served, service: ServiceRecord
) -> None:
    services, caller = served.platform.services, served.admin.identity
    stopped = services.want(service.key.org, NAME, caller, Desired.STOPPED, grace="2m")
    assert (stopped.spec.desired, stopped.spec.grace_s) == (Desired.STOPPED, 120.0)
    assert services.want(service.key.org, NAME, caller, Desired.RUN).spec.grace_s is None


def test_replicas_that_are_being_stopped_end_sooner(served: Served, service: ServiceRecord) -> None:
    services, caller = served.platform.services, served.admin.identity
    stopping, running = (
        _replica(served, service, desired) for desired in (Desired.STOPPED, Desired.RUN)
    )
    for grace, expected in (("2m", 120.0), ("0", 0.0), ("1m", 0.0)):
        services.want(service.key.org, NAME, caller, Desired.STOPPED, grace=grace)
        record = served.store.get(REPLICA, stopping)
        assert record is not None
        assert record.spec.workload.grace_s == expected
    record = served.store.get(REPLICA, running)
    assert record is not None
    assert (record.spec.workload.desired, record.spec.workload.grace_s) == (Desired.RUN, None), (
        "the controller stops it, in order"
    )


def test_the_grace_time_has_a_limit(served: Served, service: ServiceRecord) -> None:
    services, caller = served.platform.services, served.admin.identity
    with pytest.raises(InvalidRequest, match="at most 1h"):
        services.want(service.key.org, NAME, caller, Desired.STOPPED, grace="2h")
