"""The lifecycle of a job under crashes at every call, lingering leaders, lost machines and wilful
users.

The real reconciler and executor run over the fakes. Each call to the store or the engine may be the
last one of its controller (a crash *before* or *after* the call took effect), and a controller that
was replaced may wake up later and perform the action it was about to perform.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import Phase as HypothesisPhase
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from cloud_ml.controller.placement.slots import Slots
from cloud_ml.controller.placement.task_ports import TaskPorts
from cloud_ml.controller.reconcilers.workload import WorkloadReconciler
from cloud_ml.domain import quotas
from cloud_ml.domain.jobs.kind import TRAIN_JOB, TrainJobRecord
from cloud_ml.domain.jobs.spec import from_wire
from cloud_ml.domain.observed import GangState, ObservedGang
from cloud_ml.domain.quotas import Limits, QuotaSpec
from cloud_ml.domain.workloads.actions import EnsureGang, Forget, RestartTask, StopGang
from cloud_ml.domain.workloads.checkpoints import NotedCheckpoint
from cloud_ml.domain.workloads.gangs import TaskRestarts
from cloud_ml.domain.workloads.memory_growth import in_force, reserve_memory
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.domain.workloads.reasons import PLACE_LOST, Reason
from cloud_ml.domain.workloads.rules import Rules
from cloud_ml.domain.workloads.spec import Desired, RequestedRestart, change_workload
from cloud_ml.engines.base import Capacity, JobPaths
from cloud_ml.engines.fake import FakeEngine, Machine
from cloud_ml.engines.gang import Gang, GangKey, ProcessPlan
from cloud_ml.errors import FenceLost
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.recipes.array import Array
from cloud_ml.recipes.base import PlanContext
from cloud_ml.state.base import Fence
from cloud_ml.state.memory import MemoryStateStore
from cloud_ml.usecases.jobs.output_collection import CollectedOutputs
from cloud_ml.usecases.jobs.task_restarts import with_restart
from support.jobs import restarted_after, with_desired

EXAMPLES = int(os.environ.get("PROPERTIES_EXAMPLES", "25"))
pytestmark = pytest.mark.timeout(max(300, 2 * EXAMPLES))

MAX_RETRIES = 2
MAX_TASK_RETRIES = 2
SLOTS = 3
WORKERS = [None, 2, 3, "1:4"]
ARRAY = {"array": "0-4%2", "max_failed": 1}
ENDS = ("begin", "good", "bad", "memory", "lose")
REQUESTS = ("stop", "delete", "run", "pause", "resume", "restart", "restart task")
MEMORY_BYTES = 2**33
LIMIT_BYTES = 2**31
GROWN = "with more memory"
RULES = Rules(stop_grace_s=0.0, start_timeout_s=60.0)


class Crash(BaseException):
    """The process dies here."""


class Failpoints:
    """Counts calls and dies at the chosen one, before or after its effect."""

    def __init__(self, at: int | None, *, after_effect: bool) -> None:
        self.left = at
        self.after_effect = after_effect

    def wrap(self, target: object) -> object:
        return _Fragile(target, self)

    def before(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0 and not self.after_effect:
                raise Crash

    def after(self) -> None:
        if self.left is not None and self.left < 0:
            raise Crash


class _Fragile:
    def __init__(self, target: object, points: Failpoints) -> None:
        self._target, self._points = target, points

    def __getattr__(self, name: str) -> object:
        method = getattr(self._target, name)

        def call(*args: object, **kwargs: object) -> object:
            self._points.before()
            result = method(*args, **kwargs)
            if asyncio.iscoroutine(result):
                return self._finish(result)
            self._points.after()
            return result

        return call

    async def _finish(self, result: object) -> object:
        value = await result
        self._points.after()
        return value


class Acting:
    """The executor without buckets and trainers; can be frozen before an action, as a paused
    process is.
    """

    def __init__(self, store: object, engine: object, frozen: list | None) -> None:
        self.store, self.engine, self.frozen = store, engine, frozen

    async def collect_outputs(self, job) -> CollectedOutputs:
        return CollectedOutputs()

    def keeps_ports(self, job) -> bool:
        return job.status.attempt % 2 == 0

    async def newest_checkpoint(self, job) -> NotedCheckpoint:
        # Each attempt has just saved one.
        return NotedCheckpoint("newest", None, datetime.max.replace(tzinfo=UTC))

    async def perform(self, job, action, fence) -> bool:
        if self.frozen is not None:
            self.frozen.append((job, action, fence))
            raise Crash  # this controller is not heard of until it wakes
        await act(self.store, self.engine, job, action, fence)
        return True


async def act(store, engine, job, action, fence) -> None:
    key = GangKey(job.key.uid, getattr(action, "attempt", 0))
    if isinstance(action, EnsureGang):
        await engine.ensure(gang_of(key, job))
    elif isinstance(action, StopGang):
        await engine.stop(key, action.grace_s)
    elif isinstance(action, RestartTask):
        await engine.restart_task(key, action.task, action.number, action.grace_s)
    elif isinstance(action, Forget):
        await engine.forget(job.key.uid)
        store.delete(TRAIN_JOB, job.key.uid, fence=fence)


def gang_of(key: GangKey, job: TrainJobRecord) -> Gang:
    """Its tasks; in a gang of several, the second starts again alone."""
    workload = in_force(job.spec.workload, job.status)
    if workload.is_array:
        return array_of(key, job)
    plans = [
        ProcessPlan(role.name, index, ("fake", "wait"), memory_bytes=role.resources.memory_bytes)
        for role in workload.roles
        for index in range(role.replicas)
    ]
    restarts = TaskRestarts(workload.tasks[1:2], MAX_TASK_RETRIES)
    gang = Gang(key, 1, tuple(plans), completes=workload.tasks, restarts=restarts)
    return gang.with_used_restarts(job.status.task_restarts_used)


def array_of(key: GangKey, job: TrainJobRecord) -> Gang:
    """The tasks that have not completed, as the recipe of arrays plans them."""
    places = JobPaths("/storage", "/fds")
    done = tuple(task.name for task in job.status.tasks if task.reason == Reason.COMPLETED)
    context = PlanContext(key, "o", 1, "job", places, (), None, "none", completed=done)
    planned = Array().plan(in_force(job.spec.workload, job.status), context)
    restarts = TaskRestarts(job.spec.workload.tasks[1:2], MAX_TASK_RETRIES)
    every = replace(planned.processes[0], command=("fake", "wait"))
    planned = replace(planned, processes=(every,), restarts=restarts)
    return planned.with_used_restarts(job.status.task_restarts_used)


async def inline(function, *args, **kwargs):
    return function(*args, **kwargs)


def names_of(gang: ObservedGang) -> tuple[str, ...]:
    return tuple(one.name for one in gang.processes)


def _attempt(key: GangKey) -> int:
    return key.attempt


class JobLifecycle(RuleBasedStateMachine):
    nodes: tuple[int, ...] = ()
    """The memory of each machine, where there are several."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.store = MemoryStateStore()
        self.machine = Machine(self.nodes)
        self.engine = FakeEngine(self.machine, hold=True)
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.epoch = 0
        self.fence = None
        self.frozen: list = []
        self.seen: dict[str, tuple[int, int]] = {}
        self.jobs = 0
        self.pauses: dict[str, int] = {}
        self.requested_restarts: set[tuple[GangKey, str, int]] = set()
        self.quota = QuotaSpec()
        self.short: set[GangKey] = set()
        self.elect()

    def teardown(self) -> None:
        try:
            self.settle()
        finally:
            self.loop.close()

    # ---- the world

    def elect(self) -> None:
        self.now += timedelta(seconds=100)
        self.epoch += 1
        lease = self.store.acquire_lease(
            "controller", f"holder-{self.epoch}", ttl_s=50, now=self.now
        )
        assert lease is not None
        self.fence = Fence(lease.name, lease.epoch)

    def uids(self) -> list[str]:
        return [summary.key.uid for summary in self.store.list(TRAIN_JOB, limit=1000).items]

    def run_pass(self, uid: str, points: Failpoints, frozen: list | None) -> None:
        self.now += timedelta(
            milliseconds=1
        )  # no two jobs are queued at one time: random uids break ties
        store, engine = points.wrap(self.store), points.wrap(self.engine)
        ports = TaskPorts([range(20_000, 20_100)])
        room = Capacity(4000, MEMORY_BYTES)
        slots = Slots(SLOTS, room, lambda _: None, lambda _: self.quota, ports=ports)
        for other in self.uids():
            slots.sync(self.store.get(TRAIN_JOB, other))
        reconciler = WorkloadReconciler(
            store=store,
            engine=engine,
            executor=Acting(store, engine, frozen),
            slots=slots,
            rules=RULES,
            clock=lambda: self.now,
            offload=inline,
            fence=self.fence,
            kind=TRAIN_JOB,
        )
        try:
            self.loop.run_until_complete(reconciler.reconcile(uid))
        except (Crash, FenceLost):
            self.elect()

    # ---- what happens

    @rule(
        saved=st.booleans(),
        workers=st.sampled_from(WORKERS),
        array=st.booleans(),
        grows=st.booleans(),
    )
    @precondition(lambda self: self.jobs < 4)
    def submit(
        self, saved: bool, workers: int | str | None, array: bool, grows: bool = False
    ) -> None:
        roles = {"worker_count": workers, "recipe": "cluster"} if workers else {}
        restart = {"memory_factor": 1.5, "memory_most": "4G"} if grows else None
        self.jobs += 1
        self.now += timedelta(
            seconds=1
        )  # the queue is ordered by time; uids, which break ties, are random
        spec = from_wire(
            TrainJob(
                f"job-{self.jobs}",
                "m",
                "fds://bucket/t.tar.gz",
                max_retries=MAX_RETRIES,
                save_mode=saved,
                memory_limit="2G",
                restart=restart,
                **(ARRAY if array else roles),
            )
        )
        self.store.create(
            TRAIN_JOB, org="o", name=f"job-{self.jobs}", owner="u", spec=spec, now=self.now,
            status=WorkloadStatus(phase=Phase.SAVED if saved else Phase.QUEUED, queued_at=self.now),
        )  # fmt: skip

    @rule(
        data=st.data(),
        crash_at=st.none() | st.integers(0, 12),
        after_effect=st.booleans(),
        freeze=st.booleans(),
    )
    def reconcile(
        self, data: st.DataObject, crash_at: int | None, after_effect: bool, freeze: bool
    ) -> None:
        if uids := self.uids():
            uid = data.draw(st.sampled_from(uids))
            self.run_pass(
                uid,
                Failpoints(crash_at, after_effect=after_effect),
                self.frozen if freeze else None,
            )

    @rule(data=st.data())
    @precondition(lambda self: self.frozen)
    def a_paused_leader_wakes_up(self, data: st.DataObject) -> None:
        job, action, fence = self.frozen.pop(data.draw(st.integers(0, len(self.frozen) - 1)))
        try:
            self.loop.run_until_complete(act(self.store, self.engine, job, action, fence))
        except FenceLost:
            assert isinstance(action, Forget)

    @rule(data=st.data(), what=st.sampled_from(ENDS))
    def a_gang_moves(self, data: st.DataObject, what: str) -> None:
        living = [key for key, gang in self.machine.gangs.items() if not gang.state.over]
        if not living:
            return
        key = data.draw(st.sampled_from(living))
        state = self.machine.gangs[key].state
        if what == "begin" and state in (GangState.STAGING, GangState.WAITING):
            self.engine.begin(key)
        elif what == "lose":
            self.engine.lose(key)
        elif what in ("good", "bad", "memory") and state is GangState.RUNNING:
            running = [one.name for one in self.machine.gangs[key].processes if one.running]
            if not running:  # their machines are lost, and no other has room
                return
            task = data.draw(st.sampled_from(running))
            if what == "memory":
                self.engine.run_out_of_memory(key, task)
            else:
                self.engine.exit(key, task, 0 if what == "good" else 1)

    @rule(data=st.data(), request=st.sampled_from(REQUESTS))
    def a_user_requests(self, data: st.DataObject, request: str) -> None:
        if not (uids := self.uids()):
            return
        uid = data.draw(st.sampled_from(uids))
        if request == "delete":
            self.store.request_delete(TRAIN_JOB, uid, now=self.now)
        elif request == "stop":
            self.store.change_spec(TRAIN_JOB, uid, with_desired(Desired.STOPPED), now=self.now)
            return
        elif request == "restart":
            self.pauses[uid] = self.pauses.get(uid, 0) + 1
            after = self.store.get(TRAIN_JOB, uid).status.attempt
            self.store.change_spec(TRAIN_JOB, uid, restarted_after(after), now=self.now)
            return
        elif request == "restart task":
            self._request_task_restart(uid, data)
            return
        before = {"run": Desired.SAVED, "pause": Desired.RUN, "resume": Desired.PAUSED}.get(request)
        if self.store.get(TRAIN_JOB, uid).spec.workload.desired is before:
            after = Desired.PAUSED if request == "pause" else Desired.RUN
            self.pauses[uid] = self.pauses.get(uid, 0) + (request != "run")
            self.store.change_spec(TRAIN_JOB, uid, with_desired(after), now=self.now)

    def _request_task_restart(self, uid: str, data: st.DataObject) -> None:
        """Somebody wants a task to start again that runs as far as the server knows."""
        key = GangKey(uid, self.store.get(TRAIN_JOB, uid).status.attempt)
        gang = self.machine.gangs.get(key)
        running = [one for one in gang.processes if one.running] if gang is not None else []
        if not running:
            return
        task = data.draw(st.sampled_from(running))
        request = RequestedRestart(key.attempt, task.name, task.requested_restarts + 1)
        self.requested_restarts.add((key, task.name, request.number))
        self.store.change_spec(
            TRAIN_JOB,
            uid,
            lambda spec: change_workload(spec, lambda workload: with_restart(workload, request)),
            now=self.now,
        )

    @rule()
    def all_goes_well(self) -> None:
        """Otherwise few histories would have more than one job that runs."""
        for uid in self.uids():
            for _ in range(2):
                self.run_pass(uid, Failpoints(None, after_effect=False), None)
                for key, gang in self.machine.gangs.items():
                    if key.job_uid == uid and gang.state is GangState.STAGING:
                        self.engine.begin(key)

    @rule(tasks=st.integers(2, 4))
    def a_quota_is_set(self, tasks: int) -> None:
        self.quota = QuotaSpec(train=Limits(memory_bytes=tasks * 2**31))

    @rule(seconds=st.integers(1, 30))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    # ---- what must hold at every moment

    @invariant()
    def no_attempt_starts_twice(self) -> None:
        assert len(self.machine.starts) == len(set(self.machine.starts))

    @invariant()
    def one_attempt_at_a_time(self) -> None:
        living = [
            key.job_uid
            for key, gang in self.machine.gangs.items()
            if gang.state is GangState.RUNNING
        ]
        assert len(living) == len(set(living)), living

    @invariant()
    def no_attempt_is_skipped(self) -> None:
        for uid in {key.job_uid for key in self.machine.gangs}:
            attempts = sorted(key.attempt for key in self.machine.gangs if key.job_uid == uid)
            assert attempts == list(range(1, len(attempts) + 1))

    @invariant()
    def attempts_stay_within_the_policy(self) -> None:
        for key in self.machine.gangs:
            lost = sum(
                gang.reason in PLACE_LOST
                for other, gang in self.machine.gangs.items()
                if other.job_uid == key.job_uid
            )
            messages = [event.message for event in self.store.events(key.job_uid)]
            resized = sum(message.startswith("to be resized") for message in messages)
            free = lost + self.pauses.get(key.job_uid, 0) + resized  # none costs a retry
            assert key.attempt <= MAX_RETRIES + 1 + free

    @invariant()
    def restarts_of_tasks_stay_within_the_policy(self) -> None:
        used: Counter[str] = Counter()
        for key, gang in self.machine.gangs.items():
            own = {one.name: one.restarts - one.free_restarts for one in gang.processes}
            restarts = {name: count for name, count in own.items() if count}
            assert all(count > 0 for count in restarts.values())
            used[key.job_uid] += sum(restarts.values())
            assert used[key.job_uid] <= MAX_TASK_RETRIES, "in all attempts of a job together"
            assert not restarts or restarts.keys() <= {*self.machine.plans[key].restarts.tasks}

    @invariant()
    def a_task_is_restarted_once_for_each_request(self) -> None:
        done = self.machine.requested_restarts
        assert len(done) == len(set(done))
        assert self.requested_restarts.issuperset(done)

    @invariant()
    def gangs_run_whole_or_not_at_all(self) -> None:
        """Those that hold a place fit the machine together, and no task runs without the others."""
        held = 0
        for uid in self.uids():
            record = self.store.get(TRAIN_JOB, uid)
            status = record.status
            workload = in_force(record.spec.workload, status)
            tasks = workload.tasks
            live = sum(map(workload.at_once, workload.roles))
            # One that needs more memory than before has it when it starts.
            waits = status.phase is Phase.RESTARTING and status.memory
            if status.phase.active and not waits:
                held += quotas.requested_amounts(
                    reserve_memory(record.spec.workload, status)
                ).memory_bytes
            for attempt in range(1, status.attempt + 1):
                gang = self.machine.gangs.get(GangKey(uid, attempt))
                if gang is not None and gang.state is GangState.RUNNING:
                    assert sum(one.running for one in gang.processes) <= live
                    assert workload.is_array or names_of(gang) == tasks
        assert held <= MEMORY_BYTES

    @invariant()
    def memory_grows_once_for_each_attempt_that_had_too_little(self) -> None:
        for uid in self.uids():
            record = self.store.get(TRAIN_JOB, uid)
            growth = record.spec.workload.retry.memory_growth
            assert growth or not record.status.memory
            messages = [event.message for event in self.store.events(uid)]
            grown = sum(GROWN in message for message in messages)
            limits = [LIMIT_BYTES, LIMIT_BYTES * 3 // 2, 2**32]
            for role in in_force(record.spec.workload, record.status).roles:
                size = role.resources.memory_bytes
                assert size <= limits[min(grown, 2)]
                assert size == limits[min(grown, 2)] or len(record.spec.workload.roles) > 1
            self._check_limits_of_attempts(uid, limits)

    def _check_limits_of_attempts(self, uid: str, limits: list[int]) -> None:
        before: dict[str, tuple[int, bool]] = {}
        for key in sorted((k for k in self.machine.gangs if k.job_uid == uid), key=_attempt):
            if self.machine.gangs[key].reason is Reason.OUT_OF_MEMORY:
                self.short.add(key)  # an engine that is told to forget the job forgets that
            if key not in self.machine.plans:  # it was stopped before it was there
                continue
            for plan in self.machine.plans[key].processes:
                size, was_short = before.get(plan.role, (LIMIT_BYTES, False))
                larger = limits[min(limits.index(size) + 1, 2)]
                allowed = {size, larger} if was_short else {size}
                assert plan.memory_bytes in allowed
                before[plan.role] = plan.memory_bytes, key in self.short

    @invariant()
    def worlds_stay_within_the_requested_size(self) -> None:
        for uid in self.uids():
            record = self.store.get(TRAIN_JOB, uid)
            worlds = [record.status.world, record.status.next_world]
            for role in record.spec.workload.roles:
                least = role.replicas if role.least is None else role.least
                counts = [world[role.name] for world in worlds if world]
                assert all(least <= count <= role.replicas for count in counts)
            assert record.spec.workload.is_elastic or worlds == [{}, {}]

    @invariant()
    def no_task_of_an_array_runs_again_when_it_has_completed(self) -> None:
        for uid in self.uids():
            if not self.store.get(TRAIN_JOB, uid).spec.workload.is_array:
                continue
            done: set[str] = set()
            for key in sorted((k for k in self.machine.gangs if k.job_uid == uid), key=_attempt):
                gang = self.machine.gangs[key]
                assert not done & set(names_of(gang))
                done |= {one.name for one in gang.processes if one.reason is Reason.COMPLETED}

    @invariant()
    def an_array_succeeds_when_its_tasks_have(self) -> None:
        for uid in self.uids():
            job = self.store.get(TRAIN_JOB, uid)
            if job.spec.workload.is_array and job.status.phase is Phase.SUCCEEDED:
                good = [task for task in job.status.tasks if task.reason == Reason.COMPLETED]
                assert len(job.status.tasks) == job.spec.workload.task_count
                assert len(good) >= job.spec.workload.task_count - 1  # one may fail

    @invariant()
    def nothing_goes_backwards(self) -> None:
        for uid in self.uids():
            order = self.store.get(TRAIN_JOB, uid).status.order
            assert order >= self.seen.get(uid, (0, 0))
            self.seen[uid] = order

    def settle(self) -> None:
        """Left alone with a healthy controller and an impatient user, everything comes to rest."""
        for uid in self.uids():
            self.store.change_spec(TRAIN_JOB, uid, with_desired(Desired.STOPPED), now=self.now)
        for _ in range(12):
            self.now += timedelta(seconds=10)
            for uid in self.uids():
                self.run_pass(uid, Failpoints(None, after_effect=False), None)
        for uid in self.uids():
            job = self.store.get(TRAIN_JOB, uid)
            assert job.status.phase.terminal, job.status
            assert job.status.reason
            assert not job.delete_requested_at
        assert all(gang.state.over for gang in self.machine.gangs.values())


JobLifecycle.TestCase.settings = hypothesis_settings(
    max_examples=EXAMPLES,
    stateful_step_count=40,
    deadline=None,
    phases=[
        HypothesisPhase.reuse,
        HypothesisPhase.generate,
        HypothesisPhase.shrink,
    ],  # explaining a failure takes minutes
)
TestJobLifecycle = JobLifecycle.TestCase


class LifecycleOnSeveralMachines(JobLifecycle):
    """What is admitted by its sum may find no place on any machine, and machines vanish. Every
    history begins with a gang that waits for a place.
    """

    nodes = (3 * 2**30, 3 * 2**30, 2 * 2**30)

    @initialize()
    def the_second_of_two_gangs_has_no_place(self) -> None:
        for _ in range(2):
            self.submit(saved=False, workers=2, array=False)
            self.all_goes_well()
        for uid in self.uids():
            self.run_pass(uid, Failpoints(None, after_effect=False), None)
        reasons = {self.store.get(TRAIN_JOB, uid).status.reason for uid in self.uids()}
        assert reasons == {Reason.STARTED, Reason.WAITING_FOR_ENGINE}

    @rule(data=st.data())
    def a_machine_is_lost(self, data: st.DataObject) -> None:
        places = self.machine.places
        if left := sorted(places.memory_bytes.keys() - places.lost):
            self.engine.lose_node(data.draw(st.sampled_from(left)))

    @rule(data=st.data())
    def a_place_is_given_to_others(self, data: st.DataObject) -> None:
        held = [
            (key, one.name)
            for key, gang in self.machine.gangs.items()
            if not gang.state.over
            for one in gang.processes
            if one.running
        ]
        held.sort(key=lambda place: (str(place[0]), place[1]))
        if held:
            self.engine.preempt(*data.draw(st.sampled_from(held)))

    @invariant()
    def tasks_run_where_there_is_room(self) -> None:
        places, used = self.machine.places, dict.fromkeys(self.machine.places.memory_bytes, 0)
        for key, gang in self.machine.gangs.items():
            running = [] if gang.state.over else [one for one in gang.processes if one.running]
            plans = {plan.name: plan for plan in self.machine.plans[key].tasks} if running else {}
            for one in running:
                assert one.node not in places.lost
                used[one.node] += plans[one.name].memory_bytes or 0
        assert all(used[node] <= memory for node, memory in places.memory_bytes.items())

    @invariant()
    def who_waits_for_a_place_has_none_and_says_why(self) -> None:
        waiting = {
            key for key, gang in self.machine.gangs.items() if gang.state is GangState.WAITING
        }
        assert waiting == set(self.machine.queue)
        for key in waiting:
            gang = self.machine.gangs[key]
            assert gang.message
            assert gang.processes == ()
            tasks = [plan.name for plan in self.machine.plans[key].tasks]
            assert not any(self.machine.places.has_place(key, task) for task in tasks)


LifecycleOnSeveralMachines.TestCase.settings = hypothesis_settings(
    JobLifecycle.TestCase.settings, max_examples=EXAMPLES // 4
)
TestLifecycleOnSeveralMachines = LifecycleOnSeveralMachines.TestCase


class ElasticLifecycle(JobLifecycle):
    """Every history begins with a job that could become larger."""

    @initialize()
    def an_elastic_job_is_submitted(self) -> None:
        self.quota = QuotaSpec(train=Limits(memory_bytes=2 * 2**31))
        self.submit(saved=False, workers="1:4", array=False)
        self.all_goes_well()
        self.quota = QuotaSpec()


ElasticLifecycle.TestCase.settings = hypothesis_settings(
    JobLifecycle.TestCase.settings, max_examples=EXAMPLES // 4
)
TestElasticLifecycle = ElasticLifecycle.TestCase


class RestartLifecycle(JobLifecycle):
    """Every history begins with a job that runs, and a leader that lingers when it is about to have
    a task of it started again, because somebody wants it.
    """

    @initialize(data=st.data())
    def a_job_runs_and_a_task_is_to_start_again(self, data: st.DataObject) -> None:
        self.submit(saved=False, workers=2, array=False)
        self.all_goes_well()
        (uid,) = self.uids()
        self.run_pass(uid, Failpoints(None, after_effect=False), None)
        self._request_task_restart(uid, data)
        self.run_pass(uid, Failpoints(None, after_effect=False), self.frozen)
        assert isinstance(self.frozen[0][1], RestartTask)


RestartLifecycle.TestCase.settings = hypothesis_settings(
    JobLifecycle.TestCase.settings, max_examples=60
)
TestRestartLifecycle = RestartLifecycle.TestCase


class MemoryLifecycle(JobLifecycle):
    """Every history begins with three jobs that have run out of memory. There is room for two of
    them with more.
    """

    @initialize()
    def jobs_run_out_of_memory(self) -> None:
        for _ in range(3):
            self.submit(saved=False, workers=None, array=False, grows=True)
        self.all_goes_well()
        for key in self.machine.gangs:
            self.engine.run_out_of_memory(key, "master-0")


MemoryLifecycle.TestCase.settings = hypothesis_settings(
    JobLifecycle.TestCase.settings, max_examples=EXAMPLES // 4
)
TestMemoryLifecycle = MemoryLifecycle.TestCase
