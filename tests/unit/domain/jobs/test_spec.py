"""From the wire to the normal form."""

from __future__ import annotations

from typing import Any

import pytest

from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.jobs.spec import JobSpec, from_wire
from cloud_ml.domain.workloads.spec import Desired, Resources, change_workload
from cloud_ml.models import codec
from cloud_ml.models.jobs.train_job import TrainJob
from support.jobs import spec_of


@pytest.mark.parametrize(
    ("fields", "resources"),
    [
        ({}, Resources()),
        (
            {"cpu_limit": "0.5", "memory_limit": "100M", "gpu_limit": 2},
            Resources(500, 100 * 2**20, 2),
        ),
        ({"cpu_limit": 2, "memory_limit": "1.5G", "gpu_limit": "1"}, Resources(2000, 3 * 2**29, 1)),
        ({"cpu_limit": 0.25, "memory_limit": "512K"}, Resources(250, 512 * 2**10, 0)),
    ],
)
def test_amounts_become_numbers(fields: dict[str, Any], resources: Resources) -> None:
    (role,) = spec_of(**fields).workload.roles
    assert (role.name, role.replicas, role.resources) == ("master", 1, resources)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (None, ()),
        ("", ()),
        ("--a 'b c' d", ("--a", "b c", "d")),
        (["--a", "b c"], ("--a", "b c")),
        ([], ()),
    ],
)
def test_arguments_become_words(arguments: Any, words: tuple[str, ...]) -> None:
    assert spec_of(job_args=arguments).workload.program.arguments == words


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("2h", 7200), ("1d12h", 129_600), (5, 5), (None, None)]
)
def test_durations_become_seconds(text: Any, seconds: int | None) -> None:
    assert spec_of(wall_time_limit=text).workload.wall_time_s == seconds


def test_save_mode_is_a_wish_like_any_other() -> None:
    saved = from_wire(TrainJob("linear", "trainer.task", "fds://cloudml/t.tar.gz", save_mode=True))
    assert saved.workload.desired is Desired.SAVED
    started = change_workload(saved, lambda workload: workload.with_desired(Desired.RUN))
    assert started.workload.desired is Desired.RUN
    assert started.submitted is saved.submitted


def test_priority_is_the_wires_rank() -> None:
    assert (spec_of().workload.priority, spec_of(enable_rank=1).workload.priority) == (0, 1)


def test_a_spec_is_stored_and_read_back_as_it_was() -> None:
    spec = spec_of(
        cpu_limit="0.5",
        memory_limit="100M",
        job_args=["a b"],
        environment={"A": "1"},
        max_retries=3,
        wall_time_limit="2h",
        hang_timeout="10m",
    )
    assert TRAIN_JOB.decode_spec(codec.encode(spec)) == spec


def test_fields_of_a_newer_version_are_dropped_when_read() -> None:
    document = codec.encode(spec_of()) | {"newer": 1}
    read: JobSpec = TRAIN_JOB.decode_spec(document)
    assert read == spec_of()
