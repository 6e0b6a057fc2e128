"""When each task of a gang that stops gets SIGTERM."""

from __future__ import annotations

from cloud_ml.engines.local.supervisor.stop_order import StopOrder

ALL = ["client-0", "scheduler-0", "worker-0"]
SCHEDULER = ("scheduler-0",)


def test_each_is_told_once() -> None:
    order = StopOrder(SCHEDULER)
    assert order.take(ALL, 100.0) == []
    order.begin(kill_at=110.0, grace_s=10.0)
    assert order.take(ALL, 100.0) == ["client-0", "worker-0"]
    assert order.take(ALL, 101.0) == []
    assert order.take(["scheduler-0", "worker-0"], 102.0) == []
    assert order.due_at == 107.5
    assert order.take(["scheduler-0"], 103.0) == ["scheduler-0"]
    assert order.due_at is None
    assert order.take(["scheduler-0"], 108.0) == []


def test_nobody_is_killed_who_was_not_told() -> None:
    order = StopOrder(SCHEDULER)
    order.begin(kill_at=110.0, grace_s=10.0)
    assert order.take(ALL, 100.0) == ["client-0", "worker-0"]
    assert order.take(["scheduler-0", "worker-0"], 107.5) == ["scheduler-0"]
    assert order.due_at is None


def test_there_is_nothing_to_wait_for_when_the_last_has_ended_before() -> None:
    order = StopOrder(SCHEDULER)
    order.begin(kill_at=110.0, grace_s=10.0)
    assert order.take(["worker-0"], 100.0) == ["worker-0"]
    assert order.take(["worker-0"], 107.5) == []
    assert order.due_at is None


def test_a_shorter_grace_time_tells_the_last_sooner() -> None:
    order = StopOrder(SCHEDULER)
    order.begin(kill_at=160.0, grace_s=60.0)
    order.take(ALL, 100.0)
    assert order.due_at == 155.0
    order.shorten(kill_at=104.0, grace_s=4.0)
    assert order.due_at == 103.0


def test_who_is_stopped_again_is_told_again() -> None:
    order = StopOrder(())
    order.begin(kill_at=110.0, grace_s=10.0)
    assert order.take(ALL, 100.0) == ALL
    order.begin(kill_at=105.0, grace_s=4.0)
    assert order.take(ALL, 101.0) == ALL
