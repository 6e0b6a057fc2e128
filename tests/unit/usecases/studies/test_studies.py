"""A study from the request to its best trial, with a real store and controller; the jobs of its
trials are ended by the test.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from cloud_ml.aio.client import AsyncCloudMlClient
from cloud_ml.aio.resources import AsyncResources
from cloud_ml.controller.runtime.manager import ControllerManager
from cloud_ml.controller.studies import StudyController, Trials
from cloud_ml.domain.jobs.kind import TRAIN_JOB, TrainJobRecord
from cloud_ml.domain.metrics.reports import Value
from cloud_ml.domain.metrics.series import MetricLimits
from cloud_ml.domain.studies.spec import STUDY
from cloud_ml.domain.workloads.outputs import StoredOutputs
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.domain.workloads.spec import Desired
from cloud_ml.errors import AlreadyExists, Conflict, InvalidRequest, NotFound
from cloud_ml.models.studies.study import STUDIES, NewStudy, QueuedTrials, Study, StudyExtension
from cloud_ml.settings import ControllerSettings
from cloud_ml.state.metrics import NOT_READ, FilePosition, ReportFile
from cloud_ml.tuning.tuner import Tuner
from cloud_ml.usecases.studies.reported_values import LastValue, Objectives
from support.listening import listening
from support.platform import Served

pytestmark = pytest.mark.anyio

JOB: dict[str, Any] = {
    "module_name": "trainer.task",
    "trainer_uri": "fds://cloudml/trainer.whl",
    "job_args": "--epochs 3",
    "output_path": "fds://cloudml/out",
}


LARGE = {f"p{number}": ["x" * 1000, "y"] for number in range(99)}


class World:
    """A server with a controller of studies, and somebody who has the jobs end."""

    def __init__(self, served: Served, client: AsyncCloudMlClient, endpoint: str) -> None:
        self.served = served
        self.endpoint = endpoint
        self.studies = client.resources(STUDIES)
        self.tensorboards = client.tensorboards
        self.tuner = Tuner()
        self.controller: StudyController | None = None
        self._leading: asyncio.Task[None] | None = None
        self._starting: asyncio.Task[None] | None = None

    def lead(self) -> None:
        """Start the controller, as after a restart of the server."""
        here = self.served
        self.controller = controller = StudyController(
            store=here.store,
            jobs=here.platform.jobs,
            identities=here.platform.identities,
            objectives=here.platform.objectives,
            references=here.platform.references,
            checkpoints=here.platform.checkpoints,
            engine=here.engine,
            tuner=self.tuner,
            clock=here.clock,
            offload=here.platform.offload,
        )
        manager = ControllerManager(
            [controller],
            store=here.store,
            engine=here.engine,
            settings=ControllerSettings(poll_s=0.05),
            holder="me",
            clock=here.clock,
            offload=here.platform.offload,
        )
        self._leading = asyncio.create_task(manager.run())
        self._starting = asyncio.create_task(self._start_queued())

    async def stop_leading(self) -> None:
        """End the controller wherever it is."""
        for task in filter(None, (self._leading, self._starting)):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def job(self, number: int) -> TrainJobRecord | None:
        """The job of a trial."""
        return self.served.store.find(TRAIN_JOB, "default", f"rates-hp-{number}")

    async def jobs(self, *numbers: int) -> Sequence[TrainJobRecord]:
        """The jobs of trials, when all of them are there."""
        async with asyncio.timeout(60):
            while None in (found := [self.job(number) for number in numbers]):
                await asyncio.sleep(0.01)
        return [job for job in found if job is not None]

    async def _start_queued(self) -> None:
        """As the controller of jobs does, which is not there."""
        while True:
            for job in self.served.store.list(TRAIN_JOB, indexes=[Phase.QUEUED]).items:
                self.served.move(job.key.uid, Phase.STARTING)
            await asyncio.sleep(0.01)

    async def report(self, number: int, value: float, step: int = 9) -> None:
        """Have a trial's job report a value."""
        (job,) = await self.jobs(number)
        self.served.store.metrics.append(
            job.key.uid,
            ReportFile(1, "master-0"),
            [Value("loss", step, number, value)],
            before=NOT_READ,
            after=FilePosition("file", 10),
            limits=MetricLimits(),
        )

    async def end(
        self,
        number: int,
        phase: Phase,
        value: float | None = None,
        outputs: StoredOutputs | None = None,
    ) -> None:
        """Have a trial's job end, after it reported a value."""
        (job,) = await self.jobs(number)
        if value is not None:
            await self.report(number, value)
        now = self.served.platform.jobs.get(job.key.uid).status.phase
        starts = [Phase.STARTING] if now is Phase.QUEUED else []
        stops = [Phase.STOPPING] if phase is Phase.STOPPED else []
        for each in (*starts, Phase.RUNNING, *stops, phase):
            left = outputs if each is phase else None
            self.served.move(job.key.uid, each, message="its end", outputs=left)

    async def until(self, true: Callable[[Study], bool]) -> Study:
        """The study, once it is so."""
        async with asyncio.timeout(60):
            while not true(found := await self.studies.describe("rates")):
                await asyncio.sleep(0.01)
        return found


@pytest.fixture
async def world() -> AsyncIterator[World]:
    served = Served()
    served.clock.now = datetime.now(UTC)
    served.platform.objects.put("cloudml", "trainer.whl", b"code")
    async with listening(served) as port:
        identity, endpoint = served.member.identity, f"http://127.0.0.1:{port}"
        async with AsyncCloudMlClient(identity.access_key, identity.secret, endpoint) as client:
            world = World(served, client, endpoint)
            world.lead()
            yield world
            await world.stop_leading()
            await world.tuner.close()
    served.close()


def _new(**fields: Any) -> NewStudy:
    options = {"job": JOB, "space": {"lr": [0.1, 0.2, 0.3]}, "algorithm": "grid", **fields}
    return NewStudy(name="rates", **options)


async def test_each_point_of_a_grid_is_a_job_and_the_best_one_is_named(world: World) -> None:
    await world.studies.create(_new(parallel=2))
    first, second = await world.jobs(0, 1)
    described = await world.studies.describe("rates")
    assert described.space == {"lr": [0.1, 0.2, 0.3]}
    assert described.job["job_args"] == "--epochs 3"
    assert first.spec.submitted.job_args == ["--epochs", "3", "--lr=0.1"]
    assert first.spec.submitted.output_path == "fds://cloudml/out/0"
    assert second.spec.submitted.job_args == ["--epochs", "3", "--lr=0.2"]
    assert first.parent is not None
    assert world.job(2) is None, "two run at a time"
    await world.end(0, Phase.SUCCEEDED, 0.5)
    await world.end(1, Phase.SUCCEEDED, 0.25)
    await world.end(2, Phase.SUCCEEDED, 0.75)
    study = await world.until(lambda study: study.phase == "Completed")
    assert study.best is not None
    assert (study.best.job, study.best.value, study.best.step) == ("rates-hp-1", 0.25, 9)
    assert [trial.value for trial in study.trials] == [0.5, 0.25, 0.75]
    (listed,) = [each async for each in world.studies.list()]
    assert (listed.trials, listed.ended, listed.best) == ([], 3, study.best)


async def test_two_studies_in_one_output_path_are_refused(world: World) -> None:
    await world.studies.create(_new(max_trials=1))
    other = dataclasses.replace(
        _new(), name="other", job={**JOB, "output_path": "fds://cloudml/out/"}
    )
    match = "the trials of study rates write"
    with pytest.raises(InvalidRequest, match=match) as refused:
        await world.studies.create(other)
    assert refused.value.field == "job.output_path"
    await world.end(0, Phase.SUCCEEDED, 0.5)
    await world.until(lambda study: study.phase == "Completed")
    with pytest.raises(InvalidRequest, match=match):
        await world.studies.create(other)
    with pytest.raises(AlreadyExists):
        await world.studies.create(_new(parallel=3))
    free = {**JOB, "output_path": "fds://cloudml/out-2"}
    await world.studies.create(dataclasses.replace(other, job=free))
    await world.studies.delete("rates")
    await world.studies.create(dataclasses.replace(other, name="third"))


@pytest.mark.parametrize(
    ("below", "is_of_a_trial"),
    [
        ("/0", True), ("/12/inner/", True), ("/999/a/b", True), ("/inner/0", False), ("/0x", False),
        ("/007", False), ("/2026/inner", False),  # no study has so many trials
    ],
)  # fmt: skip
@pytest.mark.parametrize("inner_first", [False, True])
async def test_a_study_in_the_folder_of_a_trial_is_refused(
    world: World, below: str, is_of_a_trial: bool, inner_first: bool
) -> None:
    job = {**JOB, "output_path": f"fds://cloudml/out{below}"}
    outer, inner = _new(max_trials=1), dataclasses.replace(_new(), name="inner", job=job)
    first, second = (inner, outer) if inner_first else (outer, inner)
    await world.studies.create(first)
    identities = world.served.platform.identities
    other = identities.create_key(identities.organisation("default"), "ida")
    async with AsyncCloudMlClient(other.access_key, other.secret, world.endpoint) as client:
        others = client.resources(STUDIES)
        if not is_of_a_trial:
            await others.create(second)
            return
        await _refuse_by_name(world, others, first, second, below)


async def _refuse_by_name(
    world: World,
    others: AsyncResources[NewStudy, Study],
    first: NewStudy,
    second: NewStudy,
    below: str,
) -> None:
    message = (
        rf"the folder of its trial \d+ would hold that of study inner, fds://cloudml/out{below}"
        if first.name == "inner"
        else "where the trials of study rates write"
    )
    with pytest.raises(InvalidRequest, match=message) as refused:
        await others.create(second)
    assert refused.value.field == "job.output_path"
    assert f"cloudml hp delete {first.name}" in str(refused.value.hint)
    await world.studies.delete(first.name)
    await others.create(second)


async def test_a_controller_that_was_stopped_goes_on_and_repeats_no_trial(world: World) -> None:
    await world.studies.create(_new(parallel=1))
    (first,) = await world.jobs(0)
    await world.stop_leading()
    await world.end(0, Phase.SUCCEEDED, 0.5)
    world.lead()
    await world.end(1, Phase.SUCCEEDED, 0.4)
    await world.stop_leading()
    world.lead()
    await world.end(2, Phase.SUCCEEDED, 0.3)
    study = await world.until(lambda study: study.phase == "Completed")
    assert [trial.value for trial in study.trials] == [0.5, 0.4, 0.3]
    assert (await world.jobs(0))[0].key.uid == first.key.uid


async def test_a_study_that_is_extended_while_nobody_leads_goes_on(world: World) -> None:
    await world.studies.create(_new(max_trials=1))
    await world.end(0, Phase.SUCCEEDED, 0.5)
    await world.until(lambda study: study.phase == "Completed")
    await world.stop_leading()
    await world.studies.act("rates", "extend", StudyExtension(trials=1))
    world.lead()
    await world.end(1, Phase.SUCCEEDED, 0.4)
    study = await world.until(lambda study: study.phase == "Completed")
    assert [trial.value for trial in study.trials] == [0.5, 0.4]


_RANGE: dict[str, Any] = {"lr": {"min": 0.0, "max": 1.0}}


async def test_a_study_that_learns_comes_near_the_best_though_its_tuner_is_killed(
    world: World,
) -> None:
    await world.studies.create(_new(space=_RANGE, algorithm="auto", parallel=1, max_trials=9))
    for number in range(9):
        (job,) = await world.jobs(number)
        if number == 6:
            for tuner in world.tuner.pids:
                os.kill(tuner, signal.SIGKILL)
        (argument,) = [a for a in job.spec.submitted.job_args or [] if a.startswith("--lr=")]
        rate = float(argument.removeprefix("--lr="))
        await world.end(number, Phase.SUCCEEDED, (rate - 0.3) ** 2)
    study = await world.until(lambda study: study.phase == "Completed")
    assert study.best is not None
    assert study.best.value is not None
    assert study.best.value < 1e-3
    reasons = [event.reason for event in await world.studies.events("rates")]
    assert "TunerFailed" not in reasons, "another tuner was asked"


async def test_a_study_goes_on_without_a_tuner_and_says_so(world: World) -> None:
    world.tuner._memory = 1 << 20
    world.tuner._answer_s = 0.001
    await world.studies.create(_new(space=_RANGE, algorithm="gp", parallel=1, max_trials=5))
    for number in range(5):
        await world.end(number, Phase.SUCCEEDED, float(number))
    await world.until(lambda study: study.phase == "Completed")
    events = await world.studies.events("rates")
    (failed,) = [event for event in events if event.reason == "TunerFailed"]
    assert failed.message.startswith("trial 4 is a point of qmc instead: the tuner")


async def test_an_algorithm_of_another_tuner_is_translated(world: World) -> None:
    study = await world.studies.create(_new(algorithm="bayesianoptimization", space=_RANGE))
    assert study.algorithm == "gp"


@pytest.mark.parametrize(
    ("word", "ours"),
    [("maxTrialCount", "max_trials"), ("n_trials", "max_trials"), ("n_jobs", "parallel"),
     ("pruner", "stopper"), ("sampler", "algorithm"), ("time_budget_s", "max_time"),
     ("search_space", "space"), ("direction", "objective"), ("output_path", "job.output_path"),
     ("trainer_uri", "job.trainer_uri"), ("env", "job.environment")],
)  # fmt: skip
async def test_fields_of_other_tuners_are_answered_with_ours(
    world: World, word: str, ours: str
) -> None:
    request = {**dataclasses.asdict(_new()), word: 1}
    answer = await world.served.member.call("POST", "/api/v1/studies", request)
    assert (answer.status, f"did you mean {ours}?" in answer.text) == (400, True)


async def test_a_server_without_numpy_says_what_to_install(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = {"tpe": ["numpy", "scipy"], "auto": ["numpy", "scipy"], "cma-es": ["cmaes"]}
    named = "cloud_ml.usecases.studies.algorithms.missing_packages"
    monkeypatch.setattr(named, lambda name: missing.get(name, []))
    with pytest.raises(InvalidRequest, match="lacks cmaes"):
        await world.studies.create(_new(algorithm="CmaEsSampler", space=_RANGE))
    with pytest.raises(InvalidRequest) as refused:
        await world.studies.create(_new(algorithm="tpe", space=_RANGE))
    assert refused.value.field == "algorithm"
    assert "grid, pbt, qmc, random" in refused.value.message
    study = await world.studies.create(_new(algorithm="auto", space=_RANGE))
    assert study.algorithm == "qmc"


async def test_a_job_that_was_deleted_by_hand_is_not_made_again(world: World) -> None:
    await world.studies.create(_new(parallel=1))
    (job,) = await world.jobs(0)
    await world.until(lambda study: len(study.trials) == 1)
    world.served.store.request_delete(TRAIN_JOB, job.key.uid, now=world.served.clock.now)
    world.served.store.delete(TRAIN_JOB, job.key.uid, fence=None)
    study = await world.until(lambda study: study.trials[0].state != "Running")
    assert study.trials[0].state in ("Deleted", "Failed")
    await world.jobs(1)
    assert world.job(0) is None


async def test_trials_that_were_named_are_shown_until_they_begin(world: World) -> None:
    named = [{"lr": 0.1}, {"lr": 0.2}]
    await world.studies.create(_new(parallel=1, trials=named, space=_RANGE, algorithm="qmc"))
    await world.jobs(0)
    study = await world.until(lambda study: len(study.trials) == 1)
    assert study.queued == [{"lr": 0.2}]
    (listed,) = [each async for each in world.studies.list()]
    assert (listed.queued, listed.states) == ([], {"Running": 1})


async def test_a_name_that_is_taken_fails_the_trial_and_says_so(world: World) -> None:
    other = {**JOB, "job_name": "rates-hp-0"}
    made = await world.served.member.call("POST", "/api/v1/jobs", other)
    assert made.status == 201
    await world.studies.create(_new(parallel=1))
    study = await world.until(lambda study: bool(study.trials) and study.trials[0].message != "")
    assert study.trials[0].state == "Failed"
    assert "rates-hp-0" in study.trials[0].message


async def test_a_metric_that_was_not_reported_ends_the_study_and_nobody_waits(
    world: World,
) -> None:
    await world.studies.create(_new(parallel=3, max_failed=2))
    for number in range(3):
        await world.end(number, Phase.SUCCEEDED)
    study = await world.until(lambda study: study.phase == "Failed")
    assert study.reason == "TooManyFailures"
    assert {trial.state for trial in study.trials} == {"MetricMissing"}
    events = await world.studies.events("rates")
    assert [event.reason for event in events].count("TrialMetricMissing") == 3


async def test_what_may_be_a_secret_is_shown_nowhere(world: World) -> None:
    job = {**JOB, "job_args": "--token=abc-secret", "environment": {"API_KEY": "abc-secret"}}
    space = {"password": ["abc-secret"]}
    await world.studies.create(_new(job=job, space=space, parallel=1))
    (made,) = await world.jobs(0)
    assert "--password=abc-secret" in (made.spec.submitted.job_args or [])
    await world.end(0, Phase.SUCCEEDED, 0.5)
    await world.until(lambda study: study.phase == "Completed")
    for path in ("/api/v1/studies", "/api/v1/studies/rates", "/api/v1/studies/rates/events"):
        answer = await world.served.member.call("GET", path)
        assert answer.status == 200
        assert "abc-secret" not in answer.text, path


async def test_a_study_is_stopped_with_its_trials(world: World) -> None:
    await world.studies.create(_new(parallel=1))
    await world.jobs(0)
    await world.studies.act("rates", "stop")
    async with asyncio.timeout(60):
        while (found := world.job(0)) is None or found.spec.workload.desired is not Desired.STOPPED:
            await asyncio.sleep(0.01)
    await world.end(0, Phase.STOPPED)
    study = await world.until(lambda study: study.phase == "Stopped")
    assert [trial.state for trial in study.trials] == ["Stopped"]
    with pytest.raises(Conflict, match="Stopped"):
        await world.studies.act("rates", "stop")
    more = await world.studies.act("rates", "extend", StudyExtension(trials=1))
    assert more.max_trials == 3, "two of its combinations have not been tried"
    await world.end(1, Phase.SUCCEEDED, 0.5)
    await world.end(2, Phase.SUCCEEDED, 0.4)
    study = await world.until(lambda study: study.phase == "Completed")
    assert study.ended == 3


async def test_a_trial_that_reports_badly_is_stopped_and_a_new_controller_goes_on(
    world: World,
) -> None:
    options = {"stopper": "asha", "stopper_options": {"factor": 2}}
    await world.studies.create(_new(parallel=3, **options))
    await world.jobs(0, 1, 2)
    for number, value in enumerate([0.5, 0.4, 0.9]):
        await world.report(number, value, step=1)
    async with asyncio.timeout(60):
        while (await world.jobs(2))[0].spec.workload.desired is not Desired.STOPPED:
            await asyncio.sleep(0.01)
    await world.stop_leading()
    (job,) = await world.jobs(2)
    for phase in (Phase.RUNNING, Phase.STOPPING, Phase.STOPPED):
        world.served.move(job.key.uid, phase)
    world.lead()
    await world.end(0, Phase.SUCCEEDED)
    await world.end(1, Phase.SUCCEEDED)
    study = await world.until(lambda study: study.phase == "Completed")
    assert [(t.state, t.value) for t in study.trials] == [
        ("Completed", 0.5),
        ("Completed", 0.4),
        ("EarlyStopped", 0.9),
    ]
    assert study.trials[2].message == "at step 1 it was not among the best 1 of 3 trials"
    events = world.served.store.events((await world.jobs(2))[0].key.uid)
    assert any("not among the best" in event.message for event in events)
    reasons = [event.reason for event in await world.studies.events("rates")]
    assert reasons.count("TrialEarlyStopped") == 1


async def test_a_study_that_stops_trials_is_looked_at_when_one_reports(world: World) -> None:
    assert world.controller is not None
    options = {"stopper": "asha", "stopper_options": {"factor": 2}}
    await world.studies.create(_new(parallel=1, **options))
    (job,) = await world.jobs(0)
    async with asyncio.timeout(60):
        while not world.controller.hear(job):
            await asyncio.sleep(0.01)
    assert not world.controller.hear(dataclasses.replace(job, parent=None))


async def test_a_study_is_paused_resumed_extended_and_given_trials(world: World) -> None:
    await world.studies.create(_new(parallel=1, max_trials=2, space=_RANGE, algorithm="qmc"))
    await world.jobs(0)
    await world.studies.act("rates", "pause")
    await world.until(lambda study: study.phase == "Paused")
    await world.end(0, Phase.SUCCEEDED, 0.5)
    study = await world.until(lambda study: study.ended == 1)
    assert (study.phase, world.job(1)) == ("Paused", None)
    queued = await world.studies.act("rates", "enqueue", QueuedTrials(trials=[{"lr": 0.75}]))
    assert (queued.queued, queued.states) == ([{"lr": 0.75}], {"Completed": 1})
    await world.studies.act("rates", "resume")
    (own,) = await world.jobs(1)
    assert "--lr=0.75" in (own.spec.submitted.job_args or [])
    assert (await world.studies.describe("rates")).queued == []
    await world.end(1, Phase.SUCCEEDED, 0.4)
    await world.end(2, Phase.SUCCEEDED, 0.3)
    study = await world.until(lambda study: study.phase == "Completed")
    assert (study.max_trials, study.ended) == (3, 3)
    with pytest.raises(Conflict, match="Completed"):
        await world.studies.act("rates", "pause")
    await world.studies.act("rates", "extend", StudyExtension(trials=1, target=0.25))
    await world.end(3, Phase.SUCCEEDED, 0.2)
    study = await world.until(lambda study: study.phase == "Completed" and study.ended == 4)
    assert (study.reason, study.target) == ("TargetReached", 0.25)


async def test_a_study_of_few_combinations_is_not_extended_beyond_them(world: World) -> None:
    await world.studies.create(_new())
    for action, body, field in (
        ("extend", StudyExtension(trials=1), "trials"),
        ("extend", StudyExtension(trials=0), "trials"),
        ("enqueue", QueuedTrials(trials=[]), "trials"),
        ("enqueue", QueuedTrials(trials=[{"rate": 1}]), "trials[0]"),
        ("enqueue", QueuedTrials(trials=[{"lr": 0.1}] * 1000), "trials"),
    ):
        with pytest.raises(InvalidRequest) as refused:
            await world.studies.act("rates", action, body)
        assert refused.value.field == field
    assert (await world.studies.describe("rates")).max_trials == 3


async def test_values_that_are_found_slowly_are_committed_one_by_one(world: World) -> None:
    await world.studies.create(_new(parallel=3))
    await world.jobs(0, 1, 2)
    await world.stop_leading()
    for number in range(3):
        await world.end(number, Phase.SUCCEEDED, 0.5)
    here, now = world.served, 0.0

    class Slow(Objectives):
        def last(self, job: TrainJobRecord, metric: str) -> LastValue | None:
            nonlocal now
            now += 20
            return here.platform.objectives.last(job, metric)

    slow = Slow(here.store)
    trials = Trials(
        here.store, here.platform.jobs, here.platform.identities, slow, monotonic=lambda: now
    )
    study = here.store.find(STUDY, "default", "rates")
    assert study is not None
    seen = trials.running_jobs(study)
    assert [job.over for job in seen.values()] == [True, False, False]


async def test_with_a_study_its_trials_are_deleted(world: World) -> None:
    await world.studies.create(_new(parallel=1))
    (job,) = await world.jobs(0)
    await world.studies.delete("rates")
    async with asyncio.timeout(60):
        while (found := world.served.store.get(TRAIN_JOB, job.key.uid)) is not None:
            if found.delete_requested_at is not None:
                world.served.store.delete(TRAIN_JOB, job.key.uid, fence=None)
            await asyncio.sleep(0.01)
    with contextlib.suppress(NotFound):
        async with asyncio.timeout(60):
            while True:
                await world.studies.describe("rates")
                await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": "x" * 60}, "name"),
        ({"objective": ":min"}, "objective"),
        ({"objective": "accuracy"}, "objective"),
        ({"job": {**JOB, "trainer_uri": "fds://cloudml/none.whl"}}, "job.trainer_uri"),
        ({"objective": "accuracy:highest"}, "objective"),
        ({"algorithm": "magic"}, "algorithm"),
        ({"space": {}}, "space"),
        ({"space": {"lr": {"min": 0, "max": 1}}}, "space.lr"),
        ({"max_trials": 0}, "max_trials"),
        ({"space": LARGE, "max_trials": 99, "algorithm": "random"}, "space"),
        ({"parallel": 0}, "parallel"),
        ({"stopper": "hyperband"}, "stopper_options"),
        ({"stopper": "wilcoxon"}, "stopper"),
        ({"stopper": "asha", "stopper_options": {"patience": 1}}, "stopper_options.patience"),
        ({"max_time": "soon"}, "max_time"),
        ({"same_failures": -1}, "same_failures"),
        ({"max_failed": -1}, "max_failed"),
        ({"trials": [{"rate": 1}]}, "trials[0]"),
        ({"job": {**JOB, "job_name": "mine"}}, "job.job_name"),
        ({"job": {**JOB, "array": "0-3"}}, "job.array"),
        ({"job": {**JOB, "checkpoint": {"path": "fds://bucket/a"}}}, "job.checkpoint.path"),
        ({"job": {**JOB, "cpu_limit": "many"}}, "cpu_limit"),
        ({"job": {**JOB, "colour": "red"}}, "job.colour"),
        ({"job": {**JOB, "hdfs_endpoint": "hdfs://x"}}, "hdfs_endpoint"),
        ({"space": {"a": {"min": 1, "max": 10**6, "type": "int"}}}, "space"),
    ],
)
async def test_what_is_wrong_is_named_and_nothing_is_made(
    world: World, fields: dict[str, Any], field: str
) -> None:
    document = dataclasses.asdict(_new())
    with pytest.raises(InvalidRequest) as refused:
        await world.studies.create(NewStudy(**{**document, **fields}))
    assert refused.value.field is not None
    assert refused.value.field.endswith(field)
    assert [study async for study in world.studies.list()] == []
