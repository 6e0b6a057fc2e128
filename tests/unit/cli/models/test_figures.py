"""Services in a line: what is said of a replica agrees with what is said of its service."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime

import pytest

from cloud_ml.cli.models import deploying
from cloud_ml.cli.models.figures import replica_state, service_line
from cloud_ml.models.services.service import Replica, Service

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def replica(phase: str, *, ready: bool) -> Replica:
    return Replica(number=2, uid="r", phase=phase, ready=ready, current=True)


@pytest.mark.parametrize(
    ("phase", "ready", "expected"),
    [("Running", True, "answers"), ("Running", False, "Loading"), ("Queued", False, "Queued")],
)
def test_a_replica_whose_process_runs_answers_or_loads_its_model(
    phase: str, expected: str, *, ready: bool
) -> None:
    assert replica_state(replica(phase, ready=ready)) == expected


def test_the_line_of_a_service_whose_replica_does_not_answer_yet() -> None:
    service = Service(
        uid="u",
        name="m",
        version="v1",
        org="o",
        owner="me",
        revision=1,
        phase="Starting",
        state="creating",
        created_at=NOW,
        updated_at=NOW,
        wanted=1,
        replicas=[replica("Running", ready=False)],
    )
    assert service_line(service) == "m v1: Starting · 0 of 1 replicas answer · replica 2: Loading"


def degraded(*replicas: Replica, desired: int = 2) -> Service:
    return Service(
        uid="u",
        name="m",
        version="v1",
        org="o",
        owner="me",
        revision=1,
        phase="Degraded",
        state="processing",
        created_at=NOW,
        updated_at=NOW,
        wanted=desired,
        replicas=list(replicas),
    )


def test_a_degraded_service_is_waited_for_until_its_replicas_have_given_up() -> None:
    answers, loads = replica("Running", ready=True), replica("Running", ready=False)
    gone = dataclasses.replace(loads, given_up=True)
    assert degraded(answers, gone).settled
    assert degraded(gone, gone).settled
    assert not degraded(answers, loads).settled
    assert not degraded(gone, loads).settled
    assert not degraded(gone).settled, "another replica is to come"
    assert not degraded(answers, dataclasses.replace(gone, current=False)).settled, (
        "it is being replaced"
    )


def test_a_replica_that_has_given_up_is_not_shown_as_loading() -> None:
    gone = dataclasses.replace(replica("Running", ready=False), given_up=True)
    assert replica_state(gone) == "Failed"


def test_waiting_for_a_service_that_stays_degraded_ends_with_its_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Handle:
        name, version = "m", "v1"
        service = dataclasses.replace(
            degraded(dataclasses.replace(replica("Running", ready=False), given_up=True), desired=1),
            reason="ModelLoadFailed", message="it is junk",
        )  # fmt: skip

        def refresh(self) -> None:
            pass

    assert deploying.await_answers(Handle(), 60.0) == 3  # type: ignore[arg-type]
    output = capsys.readouterr().err
    assert "m v1 is Degraded: ModelLoadFailed: it is junk" in output
    assert "cloudml models logs m v1" in output
