"""What is told of restarts."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cloud_ml.domain.observed import GangState, ObservedProcess
from cloud_ml.domain.workloads.checkpoints import NotedCheckpoint
from cloud_ml.domain.workloads.failover_sentences import attempt_end, span, task_restart
from cloud_ml.domain.workloads.gangs import restart_process
from cloud_ml.domain.workloads.reasons import Reason
from support.jobs import NOW, gang_in

ENDED = ObservedProcess(
    "worker",
    1,
    running=False,
    reason=Reason.NON_ZERO_EXIT,
    message="worker-1 exited with code 3",
    started_at=NOW,
    finished_at=NOW + timedelta(seconds=200),
    restarts=1,
)


def test_a_restart_tells_who_why_when_and_from_where() -> None:
    again = restart_process(
        ENDED, NOW + timedelta(seconds=201), NotedCheckpoint("ckpt-900", 900, NOW)
    )
    assert task_restart(again, 3) == (
        "worker-1 starts again (restart 2 of attempt 3) after 3m20s, from step 900 (ckpt-900): "
        "worker-1 exited with code 3"
    )


def test_what_is_not_known_is_not_told() -> None:
    earlier = ObservedProcess("ps", 0, running=True, restarts=1, last_end="gone")
    assert task_restart(earlier, 1) == "ps-0 starts again (restart 1 of attempt 1): gone"
    assert attempt_end(gang_in(GangState.EXITED), None) == ""
    assert attempt_end(gang_in(GangState.EXITED, attempt=2), 7.26) == "attempt 2 ran for 7.3s"


def test_a_checkpoint_is_named_on_one_short_line() -> None:
    hostile = NotedCheckpoint("a\n\x1b[2J" + "b" * 5000, None, NOW)
    sentence = task_restart(restart_process(ENDED, NOW, hostile), 1)
    assert "from a??[2Jbbb" in sentence
    assert sentence.isprintable()
    assert len(sentence) < 400


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1.0, "0s"), (0.04, "0s"), (0.26, "0.3s"), (12.6, "13s"), (3600.2, "1h")]
)
def test_spans_are_as_exact_as_they_are_read(seconds: float, text: str) -> None:
    assert span(seconds) == text
