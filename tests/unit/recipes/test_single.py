"""The plan of a job with one process."""

from __future__ import annotations

from typing import Any

import pytest

from cloud_ml.domain.jobs.spec import from_wire
from cloud_ml.domain.workloads.seeds import seed_of
from cloud_ml.engines.base import JobPaths
from cloud_ml.engines.gang import EnvironmentPlan, Gang, GangKey, Mount, TrainerSource
from cloud_ml.recipes.base import PlanContext
from cloud_ml.recipes.single import SingleProcess
from support.jobs import spec_of

CONTEXT = PlanContext(
    key=GangKey("u1", 2),
    org="default",
    tenant=7,
    job_name="linear",
    places=JobPaths(storage="/storage", fds="/fds"),
    mounts=(Mount("cloudml", "/storage/cloudml", writable=True),),
    trainer=TrainerSource("0f" * 32, "t.tar.gz"),
    network="none",
)


def plan(**fields: Any) -> Gang:
    return SingleProcess().plan(spec_of(**fields).workload, CONTEXT)


def test_the_gang_is_that_of_the_attempt() -> None:
    gang = plan(prepare_command="a", finish_command="b", wall_time_limit="2m")
    assert (gang.key, gang.tenant, gang.mounts, gang.network) == (
        GangKey("u1", 2),
        7,
        CONTEXT.mounts,
        "none",
    )
    assert (gang.prepare_command, gang.finish_command, gang.wall_time_s) == ("a", "b", 120)
    assert gang.labels == {"job": "linear", "org": "default"}


def test_empty_commands_are_none() -> None:
    gang = plan(prepare_command="", finish_command="")
    assert (gang.prepare_command, gang.finish_command, gang.wall_time_s) == (None, None, None)


def test_the_command_runs_the_module_with_its_arguments() -> None:
    (process,) = plan(job_args=["--data=fds://cloudml/a", "b c"]).processes
    assert process.command == ("python", "-m", "trainer.task", "--data=/storage/cloudml/a", "b c")
    assert process.name == "master-0"


def test_limits_go_to_the_process() -> None:
    (process,) = plan(cpu_limit="0.5", memory_limit="100M").processes
    assert (process.cpu_millis, process.memory_bytes) == (500, 100 << 20)


def test_the_environment_is_asked_for() -> None:
    assert plan(framework="tensorflow", framework_version="1").environment == EnvironmentPlan(
        CONTEXT.trainer, "tensorflow", "1", "trainer.task"
    )


def test_the_code_is_told_who_it_is_and_where_things_go() -> None:
    (process,) = plan(
        output_path="fds://cloudml/out", model_export_path="fds://cloudml/m"
    ).processes
    assert process.environment == {
        "CLOUDML_JOB_NAME": "linear",
        "CLOUDML_JOB_ID": "u1",
        "CLOUDML_ATTEMPT": "2",
        "CLOUDML_SEED": seed_of("u1", {}),
        "CLOUDML_STORAGE": "/storage",
        "CLOUDML_OUTPUT_PATH": "/storage/cloudml/out",
        "CLOUDML_MODEL_EXPORT_PATH": "/storage/cloudml/m",
    }


@pytest.mark.parametrize(
    ("arguments", "passed"),
    [
        ([], "/storage/cloudml/out"),
        (["--epochs", "3"], "/storage/cloudml/out"),
        (["--output_path", "mine"], ""),
        (["--output_path=mine"], ""),
        (["--output-path=mine"], ""),
        (["-output_path=mine"], ""),
    ],
)
def test_the_output_path_goes_to_code_that_has_the_flag(arguments: list[str], passed: str) -> None:
    job = spec_of(output_path="fds://cloudml/out", job_args=arguments).submitted
    spec = from_wire(job, add_arguments=True)
    (process,) = SingleProcess().plan(spec.workload, CONTEXT).processes
    assert process.output_path == passed
    assert process.command == ("python", "-m", "trainer.task", *arguments)


def test_the_output_path_is_no_argument_where_the_platform_may_add_none() -> None:
    (process,) = plan(output_path="fds://cloudml/out").processes
    assert process.output_path == ""


def test_the_users_variables_win() -> None:
    (process,) = plan(environment={"CLOUDML_STORAGE": "mine", "DATA": "fds://cloudml/d"}).processes
    assert process.environment["CLOUDML_STORAGE"] == "mine"
    assert process.environment["DATA"] == "/storage/cloudml/d"


def test_uris_are_left_alone_where_the_user_says_so() -> None:
    (process,) = plan(
        rewrite_uris=False,
        job_args=["fds://cloudml/a"],
        environment={"D": "fds://cloudml/d"},
        output_path="fds://c00/o",
    ).processes
    assert process.command[-1] == "fds://cloudml/a"
    assert process.environment["D"] == "fds://cloudml/d"
    assert process.environment["CLOUDML_OUTPUT_PATH"] == "fds://c00/o"
