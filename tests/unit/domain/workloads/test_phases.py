"""The table of phases: complete, one way, and on the original wire."""

from __future__ import annotations

import itertools

import pytest

from cloud_ml.domain.workloads.phases import (
    ACTIVE,
    MOVES,
    TERMINAL,
    WIRE_STATES,
    Phase,
    WorkloadStatus,
)


def test_every_phase_has_its_moves_and_its_word_on_the_wire() -> None:
    assert set(MOVES) == set(WIRE_STATES) == set(Phase)


def test_a_phase_is_waiting_active_or_terminal() -> None:
    assert set(Phase) - ACTIVE - TERMINAL == {Phase.SAVED, Phase.PAUSED, Phase.QUEUED}
    assert not ACTIVE & TERMINAL
    assert {phase for phase in Phase if not MOVES[phase]} == TERMINAL


def test_every_end_can_be_reached_from_every_phase() -> None:
    reached = {phase: set(MOVES[phase]) for phase in Phase}
    for _, phase in itertools.product(Phase, Phase):
        reached[phase] |= {later for one in reached[phase] for later in reached[one]}
    for phase in set(Phase) - TERMINAL:
        assert reached[phase] >= TERMINAL


@pytest.mark.parametrize(("before", "after"), list(itertools.product(Phase, Phase)))
def test_only_moves_of_the_table_are_made_and_none_goes_back(before: Phase, after: Phase) -> None:
    status = WorkloadStatus(phase=before, attempt=2)
    if after not in MOVES[before]:
        with pytest.raises(ValueError, match=f"from {before} to {after}"):
            status.moved(after)
        return
    moved = status.moved(after, reason="x")
    assert (moved.phase, moved.reason, status.phase) == (after, "x", before)
    raises = after is Phase.RESTARTING or (before is Phase.STOPPING and after not in TERMINAL)
    later = WorkloadStatus(phase=after, attempt=3 if raises else 2).order
    waiting = (Phase.PAUSED, Phase.QUEUED, Phase.RESTARTING)
    assert later == status.order if {before, after} <= set(waiting) else later > status.order
