"""Studies with several objectives, through the API and both faces of the SDK."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cloud_ml.domain.metrics.reports import Value
from cloud_ml.domain.metrics.series import MetricLimits
from cloud_ml.domain.studies.spec import STUDY
from cloud_ml.domain.tensorboards.spec import TENSORBOARD
from cloud_ml.domain.workloads.outputs import StoredOutputs
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.errors import Conflict, InvalidRequest
from cloud_ml.models.studies.study import NewStudy
from cloud_ml.models.tracking.tensorboard import NewTensorBoard
from cloud_ml.state.metrics import NOT_READ, FilePosition, ReportFile
from unit.usecases.studies.test_ask_tell import World, world  # noqa: F401 - a fixture
from unit.usecases.studies.test_studies import JOB

pytestmark = pytest.mark.anyio
_SPACE: dict[str, Any] = {"x": {"min": 0.0, "max": 1.0}, "o": ["a", "b"]}
_TWO = ["error:min", "speed:max"]


@pytest.mark.parametrize("algorithm", ["auto", "nsga2", "ehvi"])
async def test_a_loop_finds_the_pareto_front(world: World, algorithm: str) -> None:  # noqa: F811
    study = await world.loops.local(
        "rates", _SPACE, objective=_TWO, algorithm=algorithm, max_trials=14, seed=1
    )
    while (trial := await study.ask()) is not None:
        x, worse = trial.parameters["x"], trial.parameters["o"] == "b"
        await study.tell(trial, [x * x + worse, x - worse])
    found = await world.until(lambda study: study.phase == "Completed")
    assert found.objectives == _TWO
    assert found.objective == "error:min, speed:max"
    assert found.best is None
    assert found.front == len(found.best_trials) >= 3
    assert {one.parameters["o"] for one in found.best_trials} == {"a"}
    assert found.message == f"{found.front} of 14 trials are on the Pareto front"
    assert found.hypervolume is not None
    assert found.hypervolume > 0
    assert found.reference == [
        max(one.values[0] for one in found.trials),
        min(one.values[1] for one in found.trials),
    ]
    assert all(one.value == one.values[0] for one in found.trials)
    for metric in ("error", "speed"):
        importance = await world.loops.importance("rates", objective=metric)
        assert importance.objective == metric
    listed = [one async for one in world.studies.list()]
    assert (listed[0].front, listed[0].best_trials) == (found.front, [])


async def test_values_are_told_for_each_objective_and_never_reported(world: World) -> None:  # noqa: F811
    def loop() -> None:
        study = world.other.studies.local("rates", _SPACE, objective=_TWO, max_trials=3)
        first = study.ask()
        assert first is not None
        with pytest.raises(Conflict, match="rates has 2 objectives; a value is reported of one"):
            first.report(1, 0.5)
        for wrong in (0.5, [0.5], [1, 2, 3], None):
            with pytest.raises(
                InvalidRequest, match="one number for each objective, in this order: error, speed"
            ):
                study.tell(first, wrong)
        study.tell(first, (0.5, 1))
        study.tell(first, [0.5, 1])
        with pytest.raises(Conflict):
            study.tell(first, [0.5, 2])
        second = study.ask()
        assert second is not None
        study.tell(second, [0.5, float("nan")])

    await asyncio.to_thread(loop)
    found = await world.studies.describe("rates")
    assert [one.state for one in found.trials] == ["Completed", "Infeasible"]


async def test_hypervolume_takes_several_objectives(world: World) -> None:  # noqa: F811
    for name in ("ehvi", "qLogEHVI"):
        with pytest.raises(
            InvalidRequest,
            match=f"algorithm is '{name}'; allowed is auto, cma-es, gp, .*, tpe, as there is one "
            "objective; ehvi takes 2 to 4",
        ):
            await world.studies.create(
                NewStudy(name="rates", space=_SPACE, algorithm=name, local=True)
            )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"objective": []}, "objective"),
        ({"objective": ["a:min"] * 5}, "1 to 4 objectives"),
        ({"objective": ["a:min", "a:max"]}, r"objective\[1\] is 'a:max'; allowed is each metric once"),
        ({"objective": "minimize:b"}, "allowed is b:min or b:max"),
        ({"objective": ["a:min", "b"]}, r"objective\[1\] is 'b'; allowed is b:min or b:max"),
        ({"stopper": "asha"}, "stopper is 'asha'; allowed is no stopper, as it takes one objective"),
        ({"target": 0.1}, "target is 0.1; allowed is no target"),
        ({"algorithm": "tpe"}, "algorithm is 'tpe'; allowed is auto, ehvi, gp, grid, nsga2, qmc, random"),
    ],
)  # fmt: skip
async def test_what_takes_one_objective_is_refused(
    world: World,  # noqa: F811
    fields: dict[str, Any],
    message: str,
) -> None:
    new = {"name": "rates", "space": _SPACE, "objective": _TWO, "local": True}
    with pytest.raises(InvalidRequest, match=message):
        await world.studies.create(NewStudy(**{**new, **fields}))


async def _end(
    world: World,  # noqa: F811
    number: int,
    *,
    outputs: StoredOutputs | None = None,
    **values: float,
) -> None:
    (job,) = await world.jobs(number)
    if values:
        world.served.store.metrics.append(
            job.key.uid,
            ReportFile(1, "master-0"),
            [Value(name, 1, at, value) for at, (name, value) in enumerate(values.items())],
            before=NOT_READ,
            after=FilePosition("file", 10),
            limits=MetricLimits(),
        )
    await world.end(number, Phase.SUCCEEDED, outputs=outputs)


async def test_a_job_that_lacks_one_metric_is_told_which(world: World) -> None:  # noqa: F811
    new = NewStudy(
        name="rates", job={**JOB, "check_uris": False}, space=_SPACE, objective=_TWO,
        algorithm="nsga2", max_trials=3, parallel=3,
    )  # fmt: skip
    await world.studies.create(new)
    await _end(world, 0, error=0.5, speed=2.0)
    await _end(world, 1, error=0.5, sped=2.0)
    await _end(world, 2, error=float("inf"), speed=1.0)
    found = await world.until(lambda study: study.phase == "Completed")
    assert [one.state for one in found.trials] == ["Completed", "MetricMissing", "Infeasible"]
    assert found.trials[1].message == (
        "its job reported no speed, but sped (job.report), error (job.report); "
        "name one of them as the objective, find it by --metric-pattern, or print lines such as "
        "speed=0.25"
    )
    assert found.trials[2].message == "its last value of error is inf"
    assert found.trials[0].values == [0.5, 2.0]
    reasons = {event.reason: event.message for event in await world.studies.events("rates")}
    assert reasons["TrialCompleted"].endswith("completed with error = 0.5, speed = 2")


def test_a_study_of_the_version_before_is_read() -> None:
    from cloud_ml.models import codec
    from cloud_ml.settings.studies import StudySettings
    from cloud_ml.usecases.studies.studies import study_spec

    new = NewStudy(name="rates", space=_SPACE, local=True)
    document = codec.encode(study_spec(new, StudySettings()))
    del document["further"]
    spec = STUDY.decode_spec(document)
    assert [str(one) for one in spec.objectives] == ["loss:min"]


async def test_the_outputs_of_the_best_trial_become_versions_of_a_model(world: World) -> None:  # noqa: F811
    new = NewStudy(
        name="rates",
        job={**JOB, "check_uris": False},
        space={"x": [1, 2]},
        max_trials=2,
        parallel=2,
    )
    await world.studies.create(new)
    with pytest.raises(InvalidRequest, match="allowed is a completed trial"):
        await world.loops.register("rates", "digits")
    await _end(world, 0, loss=0.5)
    await _end(world, 1, loss=0.25)
    await world.until(lambda study: study.phase == "Completed")
    made = await world.loops.register("rates", "digits")
    assert (made.version, made.source, made.job) == ("1", "fds://cloudml/out/1", "rates-hp-1")
    assert (await world.loops.register("rates", "digits", number=0)).version == "2"
    with pytest.raises(InvalidRequest, match="number is 7; allowed is a trial of rates: 0 to 1"):
        await world.loops.register("rates", "digits", number=7)


async def test_stored_outputs_of_a_trial_become_a_version_where_it_has_no_folder(
    world: World,  # noqa: F811
) -> None:
    job = {key: value for key, value in JOB.items() if key != "output_path"}
    new = NewStudy(
        name="rates", job={**job, "check_uris": False}, space={"x": [1, 2]}, max_trials=2,
        parallel=2,
    )  # fmt: skip
    await world.studies.create(new)
    left = StoredOutputs("fds://cloudml/.outputs/rates-hp-1-u", files=1)
    await _end(world, 0, loss=0.5)
    await _end(world, 1, outputs=left, loss=0.25)
    await world.until(lambda study: study.phase == "Completed")
    made = await world.loops.register("rates", "digits")
    assert (made.version, made.source, made.job) == ("1", left.uri, "rates-hp-1")
    with pytest.raises(InvalidRequest, match=r"trial 0 \(rates-hp-0\) has left no outputs") as no:
        await world.loops.register("rates", "digits", number=0)
    assert "--output-path fds://" in (no.value.hint or "")
    board = NewTensorBoard(name="curves", study="rates")
    created = await world.tensorboards.create(board)
    record = world.served.store.get(TENSORBOARD, created.uid)
    assert record is not None
    assert record.spec.workload.program.arguments[1:] == (
        "--name=rates-hp-1", f"--folder={left.uri}",
    )  # fmt: skip


async def test_a_study_without_outputs_has_no_tensorboard_and_is_told_how(
    world: World,  # noqa: F811
) -> None:
    job = {key: value for key, value in JOB.items() if key != "output_path"}
    new = NewStudy(
        name="rates", job={**job, "check_uris": False}, space={"x": [1, 2]}, max_trials=2
    )
    await world.studies.create(new)
    with pytest.raises(InvalidRequest, match="no trial of the study rates has stored") as none:
        await world.tensorboards.create(NewTensorBoard(name="curves", study="rates"))
    assert "cloudml hp submit … --output-path fds://" in (none.value.hint or "")
    await world.studies.create(NewStudy(name="loop", space={"x": [1, 2]}, local=True))
    with pytest.raises(InvalidRequest, match="the trials of the study loop are no jobs"):
        await world.tensorboards.create(NewTensorBoard(name="curves", study="loop"))
