"""What the end of one process means for its gang."""

from __future__ import annotations

import pytest

from cloud_ml.domain.observed import ObservedProcess
from cloud_ml.domain.workloads.gangs import ends_gang
from cloud_ml.domain.workloads.reasons import Reason


def process(role: str, index: int = 0, reason: Reason | None = None) -> ObservedProcess:
    return ObservedProcess(role, index, running=reason is None, reason=reason)


@pytest.mark.parametrize(
    ("ended", "over"),
    [
        (process("master", 0, Reason.COMPLETED), True),
        (process("master", 0, Reason.NON_ZERO_EXIT), True),
        (process("worker", 0, Reason.COMPLETED), False),
        (process("worker", 1, Reason.OUT_OF_MEMORY), True),
        (process("worker", 1, Reason.SIGNALED), True),
    ],
)
def test_the_chief_and_every_failure_end_a_gang(ended: ObservedProcess, over: bool) -> None:
    gang = [process("master"), process("worker", 0), process("worker", 1)]
    assert ends_gang(gang, ended) is over
