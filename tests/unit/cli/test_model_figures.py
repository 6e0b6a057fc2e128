"""Services in a line: what is said of a replica agrees with what is said of its service."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cloud_ml.cli.model_figures import replica_state, service_line
from cloud_ml.models.service import Replica, Service

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def replica(phase: str, *, ready: bool) -> Replica:
    return Replica(number=2, uid="r", phase=phase, ready=ready, current=True)


@pytest.mark.parametrize(
    ("phase", "ready", "told"),
    [("Running", True, "answers"), ("Running", False, "Loading"), ("Queued", False, "Queued")],
)
def test_a_replica_whose_process_runs_answers_or_loads_its_model(phase: str, told: str, *, ready: bool) -> None:
    assert replica_state(replica(phase, ready=ready)) == told


def test_the_line_of_a_service_whose_replica_does_not_answer_yet() -> None:
    service = Service(
        uid="u", name="m", version="v1", org="o", owner="me", revision=1, phase="Starting", state="creating",
        created_at=NOW, updated_at=NOW, wanted=1, replicas=[replica("Running", ready=False)],
    )  # fmt: skip
    assert service_line(service) == "m v1: Starting · 0 of 1 replicas answer · replica 2: Loading"
