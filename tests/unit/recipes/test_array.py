"""The plans of array jobs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cloud_ml.domain.workloads.exits import ExitAction
from cloud_ml.domain.workloads.gangs import TaskRestarts
from cloud_ml.engines.base import JobPaths
from cloud_ml.engines.gang import Gang, GangKey, TrainerSource
from cloud_ml.models import codec
from cloud_ml.recipes.base import PlanContext
from cloud_ml.recipes.choosing import RECIPES
from support.jobs import spec_of


def made(completed: tuple[str, ...] = (), **fields: Any) -> Gang:
    workload = spec_of(**fields).workload
    context = PlanContext(
        key=GangKey("u1", 2),
        org="default",
        tenant=7,
        job_name="sweep",
        places=JobPaths("/storage", "/fds"),
        mounts=(),
        trainer=TrainerSource("0f" * 32, "t.tar.gz"),
        network="none",
        checkpoints="/storage/b/.checkpoints/sweep-u1",
        restore_from="/storage/b/.checkpoints/sweep-u1/task-3/step-9",
        completed=completed,
    )
    return RECIPES["array"].plan(workload, context)


def test_every_task_finds_its_index_and_knows_no_other() -> None:
    gang = made(array="3-5:2%8", memory_limit="100M")
    first, second = gang.tasks
    environment = dict(second.environment)
    assert (second.name, second.memory_bytes, second.ports) == ("task-5", 100 * 2**20, ())
    for name in (
        "CLOUDML_ARRAY_INDEX",
        "CLOUDML_INDEX",
        "JOB_COMPLETION_INDEX",
        "SLURM_ARRAY_TASK_ID",
    ):
        assert environment[name] == "5"
    assert (environment["CLOUDML_ARRAY_COUNT"], environment["CLOUDML_ROLE"]) == ("2", "task")
    of_slurm = [environment[f"SLURM_ARRAY_TASK_{name}"] for name in ("COUNT", "MIN", "MAX")]
    assert of_slurm == ["2", "3", "5"]
    assert "CLOUDML_CLUSTER" not in environment
    assert environment["CLOUDML_CHECKPOINT_DIR"].endswith("sweep-u1/task-5")
    assert "CLOUDML_RESTORE_FROM" not in environment  # the newest one is another task's
    assert first.environment["CLOUDML_ARRAY_INDEX"] == "3"
    assert (gang.parallel, gang.width, gang.max_failed) == (8, 2, 0)
    assert gang.completes == ("task-3", "task-5")


def test_what_has_completed_is_left_out() -> None:
    gang = made(("task-0", "task-2"), array="0-3", max_failed=1)
    assert [plan.name for plan in gang.tasks] == ["task-1", "task-3"]
    assert gang.completes == ("task-1", "task-3")
    assert gang.tasks[0].environment["CLOUDML_ARRAY_COUNT"] == "4"
    assert gang.tasks[0].environment["SLURM_ARRAY_TASK_MIN"] == "0"
    assert gang.max_failed == 1
    assert made(("task-7",), array="7").tasks == ()


@pytest.mark.parametrize(("fields", "most"), [({}, 10), ({"task_retries": 3}, 3)])
def test_every_task_may_start_again(fields: dict[str, Any], most: int) -> None:
    gang = made(array="0-1", **fields)
    assert gang.restarts == TaskRestarts(("task-0", "task-1"), most)


def test_rules_hold_also_where_no_task_starts_again() -> None:
    rule = {"action": "restart-gang", "exit_codes": [3]}
    gang = made(array="0-1", task_retries=0, restart={"rules": [rule]})
    assert gang.restarts.most == 0
    assert gang.restarts.exits.rules[0].action is ExitAction.RESTART_GANG


def test_the_plan_of_a_thousand_tasks_is_small() -> None:
    """It goes to the spawner as one message; the variables of a job may take 64 MB."""
    gang = made(array="0-999%8", environment={"LARGE": "x" * 30_000})
    text = json.dumps(codec.encode(gang))
    assert len(text) < 80_000
    assert len(gang.tasks) == 1000
    again = codec.decode(Gang, json.loads(text), ignore_unknown=True)
    assert dict(again.tasks[999].environment) == dict(gang.tasks[999].environment)
