"""The lifecycle of a job under crashes at every call, lingering leaders, lost machines and wilful
users.

The real reconciler and executor run over the fakes. Each call to the store or the engine may be the
last one of its controller (a crash *before* or *after* the call took effect), and a controller that
was replaced may wake up later and perform the action it was about to perform.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from hypothesis import Phase as HypothesisPhase
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cloud_ml.controller.reconcilers.workload import WorkloadReconciler
from cloud_ml.controller.slots import Slots
from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.jobs.spec import from_wire
from cloud_ml.domain.observed import GangState
from cloud_ml.domain.workloads.actions import EnsureGang, Forget, StopGang
from cloud_ml.domain.workloads.decide import Rules
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.domain.workloads.spec import Desired
from cloud_ml.engines.base import Capacity, Gang, GangKey, ProcessPlan
from cloud_ml.engines.fake import FakeEngine, Machine
from cloud_ml.errors import FenceLost
from cloud_ml.models.train_job import TrainJob
from cloud_ml.state.base import Fence
from cloud_ml.state.memory import MemoryStateStore
from cloud_ml.usecases.jobs.output_collection import CollectedOutputs
from support.jobs import wanted

MAX_RETRIES = 2
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

    async def perform(self, job, action, fence) -> bool:
        if self.frozen is not None:
            self.frozen.append((job, action, fence))
            raise Crash  # this controller is not heard of until it wakes
        await act(self.store, self.engine, job, action, fence)
        return True


async def act(store, engine, job, action, fence) -> None:
    key = GangKey(job.key.uid, getattr(action, "attempt", 0))
    if isinstance(action, EnsureGang):
        await engine.ensure(Gang(key, 1, (ProcessPlan("master", 0, ("fake", "wait")),)))
    elif isinstance(action, StopGang):
        await engine.stop(key, action.grace_s)
    elif isinstance(action, Forget):
        await engine.forget(job.key.uid)
        store.delete(TRAIN_JOB, job.key.uid, fence=fence)


async def inline(function, *args, **kwargs):
    return function(*args, **kwargs)


class JobLifecycle(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.store = MemoryStateStore()
        self.machine = Machine()
        self.engine = FakeEngine(self.machine, hold=True)
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.epoch = 0
        self.fence = None
        self.frozen: list = []
        self.seen: dict[str, tuple[int, int]] = {}
        self.jobs = 0
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
        slots = Slots(2, Capacity(4000, 2**33), lambda _: None)
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

    @rule(saved=st.booleans())
    @precondition(lambda self: self.jobs < 4)
    def submit(self, saved: bool) -> None:
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

    @rule(data=st.data(), what=st.sampled_from(["begin", "good", "bad", "lose"]))
    def a_gang_moves(self, data: st.DataObject, what: str) -> None:
        living = [key for key, gang in self.machine.gangs.items() if not gang.state.over]
        if not living:
            return
        key = data.draw(st.sampled_from(living))
        state = self.machine.gangs[key].state
        if what == "begin" and state is GangState.STAGING:
            self.engine.begin(key)
        elif what == "lose":
            self.engine.lose(key)
        elif what in ("good", "bad") and state is GangState.RUNNING:
            self.engine.finish(key, 0 if what == "good" else 1)

    @rule(data=st.data(), wish=st.sampled_from(["stop", "delete", "run"]))
    def a_user_wishes(self, data: st.DataObject, wish: str) -> None:
        if not (uids := self.uids()):
            return
        uid = data.draw(st.sampled_from(uids))
        if wish == "delete":
            self.store.request_delete(TRAIN_JOB, uid, now=self.now)
        elif wish == "stop":
            self.store.change_spec(TRAIN_JOB, uid, wanted(Desired.STOPPED), now=self.now)
        elif self.store.get(TRAIN_JOB, uid).spec.workload.desired is Desired.SAVED:
            self.store.change_spec(TRAIN_JOB, uid, wanted(Desired.RUN), now=self.now)

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
    def attempts_stay_within_the_policy(self) -> None:
        assert all(key.attempt <= MAX_RETRIES + 1 for key in self.machine.gangs)

    @invariant()
    def nothing_goes_backwards(self) -> None:
        for uid in self.uids():
            order = self.store.get(TRAIN_JOB, uid).status.order
            assert order >= self.seen.get(uid, (0, 0))
            self.seen[uid] = order

    def settle(self) -> None:
        """Left alone with a healthy controller and an impatient user, everything comes to rest."""
        for uid in self.uids():
            self.store.change_spec(TRAIN_JOB, uid, wanted(Desired.STOPPED), now=self.now)
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
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    phases=[
        HypothesisPhase.reuse,
        HypothesisPhase.generate,
        HypothesisPhase.shrink,
    ],  # explaining a failure takes minutes
)
TestJobLifecycle = JobLifecycle.TestCase
