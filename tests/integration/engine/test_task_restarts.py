"""Tasks that start again alone, on this machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cloud_ml.domain.workloads.gangs import TaskRestarts
from cloud_ml.engines.gang import ProcessPlan
from cloud_ml.engines.local.engine import LocalEngine
from support.gangs import shell, when

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("end", ["exit 3", "kill -KILL $$"])
async def test_nothing_of_a_task_lives_when_it_starts_again(
    shared_engine: LocalEngine, end: str
) -> None:
    """A daemon of the first start writes into a file again and again until it is killed."""
    engine = shared_engine
    if not engine._config.bwrap and not engine._config.cgroups:
        pytest.skip("without fences no task starts again alone")
    script = f"""
        if [ $CLOUDML_TASK_RESTART = 0 ]; then
            setsid sh -c 'while :; do date +%s%N > beat; done' > /dev/null 2>&1 &
            while [ ! -s beat ]; do sleep 0.01; done
            {end}
        fi
        first=$(cat beat); sleep 0.2; [ "$first" = "$(cat beat)" ]
    """
    started = {"CLOUDML_TASK_RESTART": "0"}
    worker = ProcessPlan("worker", 1, ("sh", "-c", script), environment=started)
    other = ProcessPlan("worker", 0, ("sleep", "600"))
    gang = replace(
        shell(script),
        processes=(other, worker),
        completes=("worker-1",),
        restarts=TaskRestarts(("worker-1",), most=1),
    )
    await engine.ensure(gang)
    over = await when(engine, gang.key, lambda seen: seen.state.over)
    assert over.succeeded, over.message
    assert [one.restarts for one in over.processes] == [0, 1]
