from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from cloud_ml.domain import quotas
from cloud_ml.domain.jobs.kind import TrainJobRecord
from cloud_ml.domain.quotas import Amounts
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.domain.workloads.spec import DefaultLimits, Desired
from cloud_ml.engines.base import Capacity
from cloud_ml.errors import (
    AlreadyExists,
    Conflict,
    InvalidRequest,
    NotFound,
    OutOfSpace,
    QuotaExceeded,
    Unauthenticated,
)
from cloud_ml.models.admin.quota import LimitsChange, QuotaChange
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.state.base import Once
from cloud_ml.usecases.jobs.finding import Filters, phases_of
from support.platform import TRAINER, Served

BIG = Capacity(64_000, 2**40, gpus=8)


def submit(
    served: Served, name: str = "linear", *, key: str | None = None, **fields: Any
) -> TrainJobRecord:
    job = TrainJob(name, "trainer.task", TRAINER, **fields)
    return served.platform.jobs.submit(served.member.identity, job, BIG, idempotency_key=key)


def once(served: Served) -> Once:
    return Once("token", served.clock() + timedelta(minutes=5))


def reasons(served: Served, record: TrainJobRecord) -> list[str]:
    return [event.reason for event in served.platform.jobs.events(record)]


def test_a_job_is_queued_and_says_who_submitted_it(served: Served) -> None:
    record = submit(served)
    assert (record.status.phase, record.owner, record.key.org) == (Phase.QUEUED, "mei", "default")
    assert record.status.queued_at == served.clock()
    assert [event.message for event in served.platform.jobs.events(record)] == ["submitted by mei"]


def test_defaults_are_filled_in_before_the_quota_is_asked(served: Served) -> None:
    """A plain ``jobs submit NAME MODULE URI`` was refused in an organisation with a quota."""
    served.platform.quotas.set(
        served.admin.identity, "default", QuotaChange(train=LimitsChange(cpu="4", memory="8G"))
    )
    job = TrainJob("plain", "trainer.task", TRAINER)
    with pytest.raises(QuotaExceeded, match="has to name its"):
        served.platform.jobs.submit(served.member.identity, job, BIG)
    capacity = replace(BIG, defaults=DefaultLimits(memory_bytes=2 << 30, cpu_millis=1000))
    record = served.platform.jobs.submit(served.member.identity, job, capacity)
    assert quotas.requested_amounts(record.spec.workload) == Amounts(
        cpu_millis=1000, memory_bytes=2 << 30, gpus=0, count=1
    )
    assert record.spec.workload.roles[0].resources.cpu_millis is None, (
        "the default is charged, and no limit"
    )
    assert record.spec.submitted == job


def test_a_job_that_names_no_disk_limit_gets_the_default_of_its_day(served: Served) -> None:
    def submitted(name: str, default: int, **fields: Any) -> int | None:
        job = TrainJob(name, "trainer.task", TRAINER, **fields)
        capacity = Capacity(64_000, 2**40, defaults=DefaultLimits(disk_bytes=default))
        record = served.platform.jobs.submit(served.member.identity, job, capacity)
        assert record.spec.submitted == job, "what was asked for stays as it was"
        return record.spec.workload.disk_bytes

    assert submitted("default", 5 << 30) == 5 << 30
    assert submitted("own", 5 << 30, disk_limit="1G") == 1 << 30
    assert submitted("before", 0) is None


def test_a_saved_job_waits_until_it_is_started(served: Served) -> None:
    record = submit(served, save_mode=True)
    assert (record.status.phase, record.spec.workload.desired) == (Phase.SAVED, Desired.SAVED)
    started = served.platform.jobs.start("default", "linear", served.member.identity)
    assert started.spec.workload.desired is Desired.RUN
    assert reasons(served, record) == ["Saved", "StartRequested"]
    again = served.platform.jobs.start("default", "linear", served.member.identity)
    assert again.revision == started.revision


def test_a_job_that_ended_cannot_be_started(served: Served) -> None:
    submit(served)
    served.platform.jobs.cancel("default", "linear", served.member.identity)
    with pytest.raises(Conflict, match="only a saved job"):
        served.platform.jobs.start("default", "linear", served.member.identity)


def test_a_repeated_submit_says_whether_the_first_arrived(served: Served) -> None:
    submit(served, cpu_limit="1")
    served.platform.jobs.cancel("default", "linear", served.member.identity)
    with pytest.raises(AlreadyExists) as same:
        submit(served, cpu_limit="1")
    with pytest.raises(AlreadyExists) as other:
        submit(served, cpu_limit="2")
    assert (same.value.same_spec, other.value.same_spec) == (True, False)


def test_an_idempotency_key_makes_one_job(served: Served) -> None:
    assert submit(served, key="k").key == submit(served, key="k").key
    with pytest.raises(Conflict, match="another job, linear"):
        submit(served, "other", key="k")


def test_a_replayed_submit_makes_nothing(served: Served) -> None:
    jobs, caller = served.platform.jobs, served.member.identity
    jobs.submit(caller, TrainJob("first", "trainer.task", TRAINER), BIG, once=once(served))
    with pytest.raises(Unauthenticated):
        jobs.submit(caller, TrainJob("second", "trainer.task", TRAINER), BIG, once=once(served))
    with pytest.raises(NotFound):
        jobs.find("default", "second")


def test_a_full_disk_refuses_new_jobs_and_shows_old_ones(served: Served) -> None:
    record = submit(served)
    served.store.fail_writes(OutOfSpace("the disk is full"))
    with pytest.raises(OutOfSpace):
        submit(served, "second")
    assert served.platform.jobs.find("default", "linear") == record


@pytest.mark.parametrize("bucket", ["others", "missing"])
def test_a_foreign_bucket_looks_like_a_missing_one(served: Served, bucket: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        submit(served, fds_bucket=bucket)
    assert str(caught.value) == f"fds_bucket is {bucket!r}; there is no such bucket"


def test_a_job_is_found_by_name_and_by_uid_within_its_organisation(served: Served) -> None:
    record = submit(served)
    jobs = served.platform.jobs
    assert jobs.find("default", "linear") == jobs.find("default", record.key.uid) == record
    assert jobs.find(None, record.key.uid) == record
    for scope, name in [
        ("other", "linear"),
        ("other", record.key.uid),
        ("default", "Linear"),
        ("default", "a\x00b"),
    ]:
        with pytest.raises(NotFound):
            jobs.find(scope, name)


def test_a_name_that_is_the_uid_of_another_job_means_the_named_one(served: Served) -> None:
    first = submit(served)
    named = submit(served, first.key.uid)
    assert served.platform.jobs.find("default", first.key.uid) == named


def test_cancel_asks_once(served: Served) -> None:
    record = submit(served)
    jobs, caller = served.platform.jobs, served.member.identity
    cancelled = jobs.cancel("default", "linear", caller)
    assert cancelled.spec.workload.desired is Desired.STOPPED
    assert jobs.cancel("default", "linear", caller).revision == cancelled.revision
    assert reasons(served, record) == ["Submitted", "CancelRequested"]


def test_cancel_takes_a_grace_time_that_a_later_one_may_shorten(served: Served) -> None:
    record = submit(served, grace_time="5m")
    assert record.spec.workload.grace_s == 300.0
    jobs, caller = served.platform.jobs, served.member.identity
    assert jobs.cancel("default", "linear", caller).spec.workload.grace_s == 300.0
    shorter = jobs.cancel("default", "linear", caller, grace="20s")
    assert (shorter.spec.workload.grace_s, shorter.spec.workload.desired) == (20.0, Desired.STOPPED)
    assert jobs.cancel("default", "linear", caller, grace="1h").revision == shorter.revision
    assert jobs.cancel("default", "linear", caller, grace="0").spec.workload.grace_s == 0.0
    messages = [event.message for event in served.platform.jobs.events(record)]
    assert messages[-1].endswith("with 0 s of grace")


@pytest.mark.parametrize(
    ("grace", "words"), [("soon", "a duration"), ("2h", "at most 1h"), ("-1", "a duration")]
)
def test_a_grace_time_has_a_limit(served: Served, grace: str, words: str) -> None:
    submit(served)
    with pytest.raises(InvalidRequest, match=words) as refused:
        served.platform.jobs.cancel("default", "linear", served.member.identity, grace=grace)
    assert (refused.value.field, refused.value.value) == ("grace", grace)
    with pytest.raises(InvalidRequest, match="grace_time"):
        submit(served, "other", grace_time="2h")


def test_a_job_that_ended_by_itself_cannot_be_cancelled(served: Served) -> None:
    record = submit(served)
    served.move(record.key.uid, Phase.STARTING)
    served.move(record.key.uid, Phase.SUCCEEDED)
    with pytest.raises(Conflict, match="ended already: Succeeded"):
        served.platform.jobs.cancel("default", "linear", served.member.identity)


def test_delete_marks_once(served: Served) -> None:
    record = submit(served)
    jobs, caller = served.platform.jobs, served.member.identity
    marked = jobs.delete("default", "linear", caller)
    assert marked.delete_requested_at == served.clock()
    assert jobs.delete("default", "linear", caller).revision == marked.revision
    assert reasons(served, record) == ["Submitted", "DeleteRequested"]


def test_a_replay_of_something_that_changed_nothing_is_refused_too(served: Served) -> None:
    submit(served)
    jobs, caller = served.platform.jobs, served.member.identity
    jobs.cancel("default", "linear", caller)
    jobs.cancel("default", "linear", caller, once=once(served))
    with pytest.raises(Unauthenticated):
        jobs.cancel("default", "linear", caller, once=once(served))


@pytest.mark.parametrize("verb", ["cancel", "delete", "start"])
def test_nothing_can_be_done_to_a_job_of_somebody_else(served: Served, verb: str) -> None:
    record = submit(served)
    with pytest.raises(NotFound):
        getattr(served.platform.jobs, verb)("other", record.key.uid, served.stranger.identity)
    assert served.platform.jobs.get(record.key.uid) == record


def test_lists_are_narrowed_by_phase_or_by_state(served: Served) -> None:
    ended = submit(served, "ended")
    submit(served, "waiting")
    served.move(ended.key.uid, Phase.STARTING)
    served.move(ended.key.uid, Phase.FAILED)

    def names(states: str | None) -> list[str]:
        return [
            line.key.name
            for line in served.platform.jobs.list("default", Filters(state=states)).items
        ]

    assert names(None) == ["waiting", "ended"]
    assert names("failed") == names("Failed") == ["ended"]
    assert names("Queued, failed") == ["waiting", "ended"]
    assert not served.platform.jobs.list("other").items


def test_states_of_the_original_wire_name_several_phases() -> None:
    assert phases_of("creating") == {Phase.STARTING, Phase.RESTARTING}
    assert phases_of("Completed") == phases_of("completed") == {Phase.SUCCEEDED}
    assert phases_of("queued,SUCCEEDED") == {Phase.QUEUED, Phase.SUCCEEDED}
    with pytest.raises(InvalidRequest, match="Saved, Paused, Queued"):
        phases_of("asleep")


@pytest.mark.parametrize("phase", Phase)
def test_a_phase_means_the_same_however_it_is_spelled(phase: Phase) -> None:
    for word in (phase, phase.lower(), phase.upper()):
        assert phases_of(word) == {phase}


@pytest.mark.parametrize(
    ("word", "phase"),
    [
        ("cancelled", "Stopped"),
        ("Canceled", "Stopped"),
        ("deleted", "Stopped"),
        ("runing", "Running"),
    ],
)
def test_another_word_for_a_phase_names_it(word: str, phase: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        phases_of(word)
    assert refused.value.hint == f"Did you mean {phase}?"


def test_a_folder_of_event_files_that_two_jobs_share_is_told(served: Served) -> None:
    folder = "fds://cloudml/linear/tensorboard/"
    first = submit(served, tensorboard_logdir=folder)
    second = submit(served, "clone", tensorboard_logdir=folder.rstrip("/"))
    other = submit(served, "other", tensorboard_logdir="fds://cloudml/other/")
    assert "LogdirShared" not in reasons(served, first) + reasons(served, other)
    (warning,) = [
        event for event in served.platform.jobs.events(second) if event.reason == "LogdirShared"
    ]
    assert "job linear has the same tensorboard_logdir" in warning.message
