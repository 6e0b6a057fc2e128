"""Who may run: bounded, in order, and nobody starves."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from cloud_ml.controller.placement.slots import Slots
from cloud_ml.controller.placement.task_ports import TaskPorts
from cloud_ml.domain.jobs.kind import TrainJobRecord
from cloud_ml.domain.quotas import Limits, QuotaSpec
from cloud_ml.domain.workloads.phases import ACTIVE, TERMINAL, Phase
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.base import Capacity
from cloud_ml.errors import TryAgain
from support.jobs import NOW, job_in

GIB = 2**30


@pytest.fixture
def woken() -> list[str]:
    return []


@pytest.fixture
def slots(woken: list[str]) -> Slots:
    return Slots(2, Capacity(cpu_millis=4000, memory_bytes=4 * GIB), woken.append)


def queued(uid: str, after_s: float = 0, *, rank: int = 0, memory: str | None = None):  # type: ignore[no-untyped-def]
    fields = {"enable_rank": rank, "memory_limit": memory}
    return job_in(Phase.QUEUED, uid=uid, queued_at=NOW + timedelta(seconds=after_s), fields=fields)


def message(slots: Slots, job: TrainJobRecord) -> str:
    waits_for = slots.waits_for(job)
    return "" if waits_for is None else waits_for.message


def test_no_more_than_so_many(slots: Slots, woken: list[str]) -> None:
    jobs = [queued(uid, number) for number, uid in enumerate("abc")]
    for job in jobs:
        slots.sync(job)
    assert [slots.take(job) for job in jobs] == [True, True, False]
    slots.sync(job_in(Phase.SUCCEEDED, uid="a"))
    assert woken[-1] == "c", "the one whose turn it is gets a look"
    assert slots.take(jobs[2])


def test_nobody_gets_a_place_before_the_line_is_known(woken: list[str]) -> None:
    slots = Slots(2, Capacity(cpu_millis=4000, memory_bytes=4 * GIB), woken.append, opened=False)
    slots.sync(job_in(Phase.RUNNING, uid="running"))
    slots.sync(late := queued("late", 9))
    slots.sync(job_in(Phase.SUCCEEDED, uid="running"))
    assert not slots.take(late)
    slots.sync(early := queued("early", 1))
    assert woken == []
    slots.open()
    assert woken == ["early"]
    assert not slots.take(late)
    assert slots.take(early)


def gang(phase: Phase, uid: str, workers: int, ports: tuple[int, ...] = ()) -> TrainJobRecord:
    job = job_in(phase, uid=uid, fields={"worker_count": workers, "recipe": "cluster"})
    return replace(job, status=replace(job.status, ports=ports))


def test_who_waits_for_ports_keeps_its_turn_and_is_woken(woken: list[str]) -> None:
    room = Capacity(cpu_millis=4000, memory_bytes=4 * GIB)
    slots = Slots(4, room, woken.append, ports=TaskPorts([range(10, 14)]))
    slots.sync(first := gang(Phase.QUEUED, "first", 3))
    slots.sync(second := gang(Phase.QUEUED, "second", 3))
    slots.sync(third := gang(Phase.QUEUED, "third", 1))
    assert slots.take(first)
    slots.sync(gang(Phase.STARTING, "first", 3, slots.ports_for(first)))
    assert not slots.take(second)
    assert not slots.take(third), "small gangs would keep a large one waiting for ever"
    waits_for = slots.waits_for(second)
    assert waits_for is not None
    assert waits_for.reason is Reason.INSUFFICIENT_CAPACITY
    assert waits_for.message == "3 ports are needed, and 1 of engine.ports are free"
    slots.sync(gang(Phase.SUCCEEDED, "first", 3))
    assert woken[-1] == "second"
    assert slots.take(second)
    assert slots.ports_for(second) == (13, 10, 11)
    assert slots.take(third)


def test_who_needs_more_ports_than_there_are_holds_up_nobody() -> None:
    room = Capacity(cpu_millis=4000, memory_bytes=4 * GIB)
    slots = Slots(4, room, lambda _: None, ports=TaskPorts([range(10, 12)]))
    slots.sync(large := gang(Phase.QUEUED, "large", 3))  # of a time with more ports
    slots.sync(small := gang(Phase.QUEUED, "small", 1))
    assert slots.take(large)
    with pytest.raises(TryAgain, match="3 ports are needed"):
        slots.ports_for(large)
    slots.forget("large")
    assert slots.take(small)


def test_asking_again_keeps_the_place(slots: Slots) -> None:
    job = queued("a")
    slots.sync(job)
    assert slots.take(job)
    assert slots.take(job)
    for uid in "bc":
        slots.sync(queued(uid))
    assert slots.take(queued("b"))
    assert not slots.take(queued("c")), "the place was not taken twice"


def test_priority_goes_before_age_and_age_before_luck(slots: Slots) -> None:
    for job in (
        late := queued("late", 9),
        early := queued("early", 1),
        urgent := queued("urgent", 99, rank=1),
    ):
        slots.sync(job)
    assert not slots.take(late)
    assert not slots.take(early)
    assert slots.take(urgent)
    assert not slots.take(late)
    assert slots.take(early)


@pytest.mark.parametrize("phase", sorted(ACTIVE))
def test_after_a_restart_of_the_controller_active_jobs_hold_their_places(
    slots: Slots, phase: Phase
) -> None:
    for uid in "ab":
        slots.sync(job_in(phase, uid=uid))
    waiting = queued("c")
    slots.sync(waiting)
    assert not slots.take(waiting)


@pytest.mark.parametrize("phase", [*sorted(TERMINAL), Phase.SAVED])
def test_a_job_that_is_over_or_saved_holds_nothing(slots: Slots, phase: Phase) -> None:
    for uid in "abcd":
        slots.sync(job_in(phase, uid=uid))
    job = queued("e")
    slots.sync(job)
    assert slots.take(job)


def test_memory_limits_together_stay_within_the_machine(slots: Slots, woken: list[str]) -> None:
    big, bigger = queued("big", 1, memory="3G"), queued("bigger", 2, memory="2G")
    slots.sync(big)
    slots.sync(bigger)
    assert slots.take(big)
    assert not slots.take(bigger)
    slots.forget("big")
    assert woken[-1] == "bigger"
    assert slots.take(bigger)


def test_a_small_job_does_not_overtake_a_big_one_for_ever(slots: Slots) -> None:
    running, big, small = (
        queued("running", 0, memory="3G"),
        queued("big", 1, memory="2G"),
        queued("small", 2),
    )
    for job in (running, big, small):
        slots.sync(job)
    assert slots.take(running)
    assert not slots.take(small), "it waits behind the big one"
    slots.forget("running")
    assert slots.take(big)
    assert slots.take(small)


def test_what_fits_no_machine_still_runs_alone(slots: Slots) -> None:
    huge = queued("huge", memory="9G")
    slots.sync(huge)
    assert slots.take(huge)


def test_a_cancelled_job_in_the_line_holds_nobody_up(slots: Slots, woken: list[str]) -> None:
    for number, uid in enumerate("abcd"):
        slots.sync(queued(uid, number))
    assert slots.take(queued("a"))
    assert slots.take(queued("b"))
    slots.sync(job_in(Phase.STOPPED, uid="c"))
    slots.sync(job_in(Phase.SUCCEEDED, uid="a"))
    assert woken[-1] == "d"
    assert slots.take(queued("d", 3))


def test_forgetting_a_stranger_is_nothing(slots: Slots, woken: list[str]) -> None:
    slots.forget("nobody")
    assert woken == []


# ---- several organisations


def of(org: str, job: TrainJobRecord) -> TrainJobRecord:
    return replace(job, key=replace(job.key, org=org))


def test_who_floods_the_queue_makes_others_wait_for_one_place_only(
    slots: Slots, woken: list[str]
) -> None:
    flood = [of("red", queued(f"red-{number}", number, rank=1)) for number in range(20)]
    for job in flood:
        slots.sync(job)
    assert [slots.take(job) for job in flood[:3]] == [True, True, False]
    other = of("blue", queued("blue", 99))
    slots.sync(other)
    assert not slots.take(other), "nobody is thrown out for it"
    slots.forget("red-0")
    assert woken[-1] == "blue"
    assert not slots.take(flood[2])
    assert slots.take(other)


def test_the_last_place_is_kept_for_who_holds_none(woken: list[str]) -> None:
    """Jobs that never end could otherwise keep others out for ever."""
    slots = Slots(3, Capacity(cpu_millis=4000, memory_bytes=4 * GIB), woken.append, reserved=1)
    flood = [of("red", queued(f"red-{number}", number)) for number in range(4)]
    for job in flood:
        slots.sync(job)
    assert [slots.take(job) for job in flood] == [True, True, False, False]
    assert (
        message(slots, flood[2])
        == "the last place is kept for organisations that have no job running"
    )
    blue, green = of("blue", queued("blue", 99)), of("green", queued("green", 100))
    slots.sync(blue)
    assert slots.take(blue)
    slots.sync(green)
    assert not slots.take(green), "there is none left"
    slots.forget("blue")
    assert woken[-1] == "green"
    slots.forget("green")
    assert not slots.take(flood[2])
    slots.reserve(0)
    assert woken[-1] == "red-2"
    assert slots.take(flood[2])


def test_among_organisations_that_hold_as_many_the_older_job_goes_first(slots: Slots) -> None:
    jobs = [
        of("red", queued("a", 3)),
        of("blue", queued("b", 1)),
        of("blue", queued("c", 2)),
        of("red", queued("d", 4)),
    ]
    for job in jobs:
        slots.sync(job)
    assert [slots.take(job) for job in jobs] == [False, True, False, False]
    assert slots.take(jobs[0]), "blue holds one by now"


# ---- quotas


@pytest.fixture
def quotas() -> dict[str, QuotaSpec]:
    return {"red": QuotaSpec(train=Limits(count=1, memory_bytes=2 * GIB))}


@pytest.fixture
def shared(woken: list[str], quotas: dict[str, QuotaSpec]) -> Slots:
    """Places that a quota bounds before the machine does."""
    capacity = Capacity(cpu_millis=64000, memory_bytes=64 * GIB)
    return Slots(8, capacity, woken.append, lambda org: quotas.get(org, QuotaSpec()))


def test_a_job_over_its_quota_waits_says_why_and_lets_others_pass(
    shared: Slots, woken: list[str]
) -> None:
    first, second = (of("red", queued(uid, number, memory="1G")) for number, uid in enumerate("ab"))
    other = of("blue", queued("c", 9))
    for job in (first, second, other):
        shared.sync(job)
    assert shared.take(first)
    assert not shared.take(second)
    assert message(shared, second) == "the quota of jobs at once for train jobs: 1 of 1 are running"
    assert shared.take(other), "it waits for nobody else's quota"
    assert shared.waits_for(other) is None
    shared.forget("a")
    assert woken[-1] == "b"
    assert shared.take(second)


def test_within_an_organisation_nobody_overtakes(
    shared: Slots, quotas: dict[str, QuotaSpec]
) -> None:
    quotas["red"] = QuotaSpec(train=Limits(memory_bytes=2 * GIB))
    running, big, small = (
        of("red", queued(uid, number, memory=size))
        for number, (uid, size) in enumerate([("a", "1G"), ("b", "2G"), ("c", "1G")])
    )
    for job in (running, big, small):
        shared.sync(job)
    assert shared.take(running)
    assert not shared.take(small)
    assert "before wait for its quota" in message(shared, small)
    shared.forget("a")
    assert shared.take(big)


def test_a_raised_quota_wakes_who_waits(
    shared: Slots, woken: list[str], quotas: dict[str, QuotaSpec]
) -> None:
    first, second = (of("red", queued(uid, number, memory="1G")) for number, uid in enumerate("ab"))
    for job in (first, second):
        shared.sync(job)
    assert shared.take(first)
    quotas["red"] = QuotaSpec()
    shared.quota_changed("red")
    assert woken[-1] == "b"
    assert shared.waits_for(second) is None
    assert shared.take(second)


def test_what_a_lowered_quota_can_never_hold_is_told_so_and_holds_up_nobody(
    shared: Slots, woken: list[str], quotas: dict[str, QuotaSpec]
) -> None:
    quotas["red"] = QuotaSpec(train=Limits(memory_bytes=4 * GIB, count=1))
    running, big, small, late = (
        of("red", queued(uid, number, memory=size))
        for number, (uid, size) in enumerate([("a", "1G"), ("b", "3G"), ("c", "1G"), ("d", "1G")])
    )
    for job in (running, big, small, late):
        shared.sync(job)
    assert shared.take(running)
    assert not shared.take(small)
    quotas["red"] = QuotaSpec(train=Limits(memory_bytes=2 * GIB, count=4))
    woken.clear()
    shared.quota_changed("red")
    assert set(woken) == {"b", "c", "d"}, "all of them wait for something else by now"
    assert not shared.take(big)
    assert message(shared, big) == (
        "the job can never start while the quota stays as it is: "
        "the quota of memory for train jobs is 2G, and the job asks for 3G"
    )
    assert shared.take(small)
    assert not shared.take(late)
    assert message(shared, late) == (
        "the quota of memory for train jobs: 2G of 2G are used, the job asks for 1G"
    )
    quotas["red"] = QuotaSpec(train=Limits(memory_bytes=5 * GIB))
    shared.quota_changed("red")
    assert not shared.take(late), "the large one is older, and could start by now"
    assert shared.take(big)
    shared.forget("a")
    assert shared.take(late)


def test_a_quota_of_no_jobs_holds_all_of_them_and_nobody_elses(
    shared: Slots, woken: list[str], quotas: dict[str, QuotaSpec]
) -> None:
    quotas["red"] = QuotaSpec(train=Limits(count=0))
    jobs = [of("red", queued(uid, number)) for number, uid in enumerate("ab")]
    for job in (*jobs, other := of("blue", queued("other", 9))):
        shared.sync(job)
    assert [shared.take(job) for job in (*jobs, other)] == [False, False, True]
    assert message(shared, jobs[1]) == (
        "the job can never start while the quota stays as it is: "
        "the quota of jobs at once for train jobs is 0"
    )
    shared.forget("a")
    del quotas["red"]  # read at the start of a term, for example
    assert shared.take(jobs[1])


def test_who_becomes_the_first_that_waits_for_a_quota_is_woken(
    shared: Slots, woken: list[str]
) -> None:
    """Or it would go on to say that others are before it."""
    jobs = [of("red", queued(uid, number, memory="1G")) for number, uid in enumerate("abc")]
    for job in jobs:
        shared.sync(job)
    assert shared.take(jobs[0])
    assert "before wait for its quota" in message(shared, jobs[2])
    woken.clear()
    shared.forget("b")
    assert woken == ["c"]
    assert message(shared, jobs[2]).endswith("1 of 1 are running")


def test_figures_are_told_anew_when_they_change(
    shared: Slots, woken: list[str], quotas: dict[str, QuotaSpec]
) -> None:
    quotas["red"] = QuotaSpec(train=Limits(memory_bytes=4 * GIB))
    jobs = [
        of("red", queued(uid, number, memory=size))
        for number, (uid, size) in enumerate([("a", "1G"), ("b", "2G"), ("c", "4G")])
    ]
    for job in jobs:
        shared.sync(job)
    assert shared.take(jobs[0])
    assert shared.take(jobs[1])
    assert "3G of 4G are used" in message(shared, jobs[2])
    woken.clear()
    shared.forget("a")
    assert woken == ["c"]
    assert "2G of 4G are used" in message(shared, jobs[2])


def test_what_runs_already_counts_after_a_restart(shared: Slots) -> None:
    shared.sync(of("red", job_in(Phase.RUNNING, uid="a", fields={"memory_limit": "1G"})))
    waiting = of("red", queued("b", memory="1G"))
    shared.sync(waiting)
    assert not shared.take(waiting)


def test_replicas_of_services_go_by_the_limits_of_models(woken: list[str]) -> None:
    quota = QuotaSpec(
        train=Limits(memory_bytes=0, count=0), model=Limits(memory_bytes=3 * GIB, count=1)
    )
    places = Slots(
        9,
        Capacity(cpu_millis=4000, memory_bytes=99 * GIB),
        woken.append,
        lambda _: quota,
        kind="model",
    )
    jobs = [queued(uid, number, memory="2G") for number, uid in enumerate("ab")]
    for job in jobs:
        places.sync(job)
    assert [places.take(job) for job in jobs] == [True, False]
    assert message(places, jobs[1]) == (
        "the quota of memory for model services: 2G of 3G are used, the replica asks for 2G"
    )


def test_jobs_and_replicas_share_the_limits_of_all_work(woken: list[str]) -> None:
    quota = QuotaSpec(total=Limits(memory_bytes=3 * GIB, count=1))
    lines: list[Slots] = []
    capacity = Capacity(cpu_millis=4000, memory_bytes=99 * GIB)
    jobs = Slots(9, capacity, woken.append, lambda _: quota, beside=lines)
    replicas = Slots(9, capacity, woken.append, lambda _: quota, kind="model", beside=lines)
    job, replica, another = (queued(uid, memory="2G") for uid in ("job", "replica", "another"))
    jobs.sync(job)
    replicas.sync(replica)
    assert jobs.take(job)
    assert not replicas.take(replica)
    assert message(replicas, replica) == (
        "the quota of memory for all work together: 2G of 3G are used, the replica asks for 2G"
    )
    jobs.forget("job")
    assert woken[-1] == "replica", "what a job gives back is there for replicas"
    assert replicas.take(replica)
    jobs.sync(another)
    assert not jobs.take(another)
    replicas.forget("replica")
    assert woken[-1] == "another"
    assert jobs.take(another)


def test_a_replica_and_a_tensorboard_that_can_never_start_hold_up_none(woken: list[str]) -> None:
    quota = QuotaSpec(total=Limits(memory_bytes=3 * GIB), tensorboards=0)
    lines: list[Slots] = []
    capacity = Capacity(cpu_millis=4000, memory_bytes=99 * GIB)
    replicas, boards, jobs = (
        Slots(9, capacity, woken.append, lambda _: quota, kind=kind, beside=lines)
        for kind in ("model", "tensorboard", "train")
    )
    replicas.sync(large := queued("large", 1, memory="4G"))
    replicas.sync(small := queued("small", 2, memory="1G"))
    boards.sync(board := queued("board", memory="1G"))
    jobs.sync(job := queued("job", memory="1G"))
    assert [replicas.take(large), replicas.take(small)] == [False, True]
    assert message(replicas, large) == (
        "the replica can never start while the quota stays as it is: "
        "the quota of memory for all work together is 3G, and the replica asks for 4G"
    )
    assert not boards.take(board)
    assert message(boards, board) == (
        "the TensorBoard can never start while the quota stays as it is: "
        "the quota of jobs at once for TensorBoards is 0"
    )
    assert jobs.take(job)


def test_jobs_and_replicas_share_the_memory_of_the_machine(woken: list[str]) -> None:
    """Each kind had a book of its own, so that both together promised more memory than there is."""
    lines: list[Slots] = []
    capacity = Capacity(cpu_millis=4000, memory_bytes=4 * GIB)
    jobs, replicas = (
        Slots(9, capacity, woken.append, kind=kind, beside=lines) for kind in ("train", "model")
    )
    job, replica = queued("job", memory="3G"), queued("replica", memory="2G")
    jobs.sync(job)
    replicas.sync(replica)
    assert jobs.take(job)
    assert not replicas.take(replica)
    waits_for = replicas.waits_for(replica)
    assert waits_for is not None
    assert waits_for.reason is Reason.INSUFFICIENT_CAPACITY
    assert waits_for.message == "memory of this machine: 3G of 4G are used, the replica asks for 2G"
    woken.clear()
    jobs.forget("job")
    assert woken == ["replica"]
    assert replicas.take(replica)


@pytest.mark.parametrize(("overcommit", "both"), [(0.0, True), (1.0, False), (1.5, True)])
def test_processors_are_promised_as_often_as_the_operator_says(
    overcommit: float, both: bool
) -> None:
    capacity = Capacity(cpu_millis=4000, memory_bytes=4 * GIB, cpu_overcommit=overcommit)
    slots = Slots(9, capacity, lambda _: None)
    first, second = (
        job_in(Phase.QUEUED, uid=uid, queued_at=NOW, fields={"cpu_limit": "3"}) for uid in "ab"
    )
    slots.sync(first)
    slots.sync(second)
    assert slots.take(first)
    assert slots.take(second) is both
    sentence = "processors of this machine: 3 cores of 4 cores are used, the job asks for 3 cores"
    assert message(slots, second) == ("" if both else sentence)


def test_whoever_gets_the_turn_as_another_line_takes_the_quota_is_woken(woken: list[str]) -> None:
    """A job waited for memory that another organisation's next job did not need."""
    lines: list[Slots] = []
    quota_of = {"b": QuotaSpec(total=Limits(cpu_millis=4000))}
    capacity = Capacity(cpu_millis=16_000, memory_bytes=8 * GIB)

    def line(kind: str, wake: list[str]) -> Slots:
        def quota(org: str) -> QuotaSpec:
            return quota_of.get(org, QuotaSpec())

        return Slots(8, capacity, wake.append, quota, kind=kind, beside=lines)

    def waiting(uid: str, org: str, after_s: float, cpu: str, memory: str) -> TrainJobRecord:
        fields = {"cpu_limit": cpu, "memory_limit": memory}
        job = job_in(
            Phase.QUEUED, uid=uid, queued_at=NOW + timedelta(seconds=after_s), fields=fields
        )
        return replace(job, key=replace(job.key, org=org))

    jobs, boards = line("train", woken), line("tensorboard", [])
    runs = waiting("runs", "c", 0, "1", "5G")
    large, small = waiting("large", "b", 1, "2", "5G"), waiting("small", "a", 2, "1", "1G")
    for job in (runs, large, small):
        jobs.sync(job)
    assert [jobs.take(job) for job in (runs, large, small)] == [True, False, False]
    woken.clear()
    board = waiting("board", "b", 3, "4", "1G")
    boards.sync(board)
    assert boards.take(board)
    assert "small" in woken
    assert jobs.take(small)
