"""Which objects are the inputs of a job that has a bucket."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from cloud_ml.domain.comparison.inputs import manifests_of
from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.tracking.runs import NewRun
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.usecases.comparison.inputs import InputManifests
from support.jobs import job_in
from support.platform import Served


@pytest.mark.parametrize("seen_running", [True, False])
def test_what_a_job_wrote_is_no_input_also_if_nobody_saw_it_run(
    served: Served, seen_running: bool
) -> None:
    """A short job may end before the server looks at it again."""
    objects = served.platform.objects
    objects.put("cloudml", "set/a.csv", b"1")
    read = objects.head("cloudml", "set/a.csv")
    objects.put("cloudml", "left.txt", b"own")
    left = objects.head("cloudml", "left.txt")
    assert read is not None
    assert left is not None
    began = read.modified + (left.modified - read.modified) / 2
    assert read.modified < began <= left.modified
    times: dict[str, Any] = {"starting_at": began}
    if seen_running:
        times = {"starting_at": began - timedelta(seconds=9), "started_at": began}
    job = job_in(Phase.STARTING, fields={"fds_bucket": "cloudml"}, **times)
    job = served.store.create(
        TRAIN_JOB,
        org="default",
        name=job.key.name,
        owner=job.owner,
        spec=job.spec,
        status=job.status,
        now=job.created_at,
        run=NewRun(),
    )
    inputs = InputManifests(served.store, served.platform.storage, objects)
    inputs.note(job, lambda: False)
    uid = job.key.uid
    (found,) = manifests_of(served.store.tracking.inputs([uid])[uid], listed=True).values()
    assert [one.key for one in found.listed] == ["set/a.csv"]
