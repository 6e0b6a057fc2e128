"""A model service and its replicas in memory, moved by decisions as the controller moves them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from cloud_ml.domain.records import Key, Record
from cloud_ml.domain.services import spec as specs
from cloud_ml.domain.services.decide import (
    DropReplica,
    ForgetService,
    MakeReplica,
    StopReplica,
    decide,
)
from cloud_ml.domain.services.releases import change_fields
from cloud_ml.domain.services.status import SeenReplica, ServicePhase, ServiceStatus
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.domain.workloads.spec import Desired
from cloud_ml.models.services.model_service import ModelService

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def service_of(replicas: int = 2, **fields: object) -> ModelService:
    return ModelService("m", "v1", "fds://bucket/m", replicas=replicas, **fields)


class World:
    """A service and its replicas, moved by decisions as the controller moves them."""

    def __init__(self, service: ModelService) -> None:
        self.record = Record(
            Key("model_service", "o", "m/v1", "u"),
            "me",
            1,
            1,
            NOW,
            NOW,
            specs.from_wire(service),
            ServiceStatus(),
        )
        self.replicas: dict[int, SeenReplica] = {}
        self.ended: dict[int, SeenReplica] = {}
        self.keep_ended = 3
        self.now = NOW
        self.quota_wait_s = 0.0
        self.no_port = ""
        self.gone = False
        self.made: list[int] = []

    @property
    def status(self) -> ServiceStatus:
        return self.record.status

    def change(self, **fields: object) -> None:
        spec = change_fields(self.record.spec, fields, served=self.status.serving_template, keep=3)
        self.record = replace(self.record, spec=spec)

    def want(self, desired: Desired) -> None:
        self.record = replace(self.record, spec=self.record.spec.with_desired(desired))

    def delete(self) -> None:
        self.record = replace(self.record, delete_requested_at=NOW)

    def step(self) -> bool:
        """One look; false when nothing follows from it."""
        seen = [*self.replicas.values(), *self.ended.values()]
        decision = decide(
            self.record,
            seen,
            self.now,
            keep_ended=self.keep_ended,
            quota_wait_s=self.quota_wait_s,
            no_port=self.no_port,
        )
        assert decision.status is None or not decision.actions
        if decision.status is not None:
            assert decision.status.next >= self.status.next
            self.record = replace(self.record, status=decision.status)
            return True
        for action in decision.actions:
            if isinstance(action, MakeReplica):
                number = action.desired.number
                assert number not in self.made, "a number is used once"
                self.made.append(number)
                self.replicas[number] = SeenReplica(
                    f"r{number}", number, action.desired.template, Phase.QUEUED
                )
            elif isinstance(action, StopReplica):
                each = self._by(self.replicas, action.uid)
                self.replicas[each.number] = replace(each, leaving=True, ready=False)
                if each.phase.terminal:
                    self.end(each.number)
            elif isinstance(action, DropReplica):
                each = self._by(self.ended, action.uid)
                self.ended[each.number] = replace(each, deleting=True)
            else:
                assert isinstance(action, ForgetService)
                assert not self.replicas
                assert not self.ended
                self.gone = True
        return bool(decision.actions) and not self.gone

    def settle(self) -> None:
        for _ in range(100):
            if not self.step():
                return
        raise AssertionError("it does not come to rest")

    def answer(self, which: Callable[[SeenReplica], bool] = lambda _: True) -> None:
        """Replicas that live and fit become ready; those that were stopped end, what was dropped
        goes.
        """
        self.ended = {number: each for number, each in self.ended.items() if not each.deleting}
        for number, each in list(self.replicas.items()):
            if each.leaving:
                self.end(number)
            elif not each.phase.terminal and which(each):
                self.replicas[number] = replace(each, phase=Phase.RUNNING, ready=True)

    def end(self, number: int) -> None:
        """A replica that was stopped has ended."""
        each = self.replicas.pop(number)
        phase = each.phase if each.phase.terminal else Phase.STOPPED
        self.ended[number] = replace(each, phase=phase, leaving=True, ready=False, ended_at=NOW)

    @staticmethod
    def _by(found: dict[int, SeenReplica], uid: str) -> SeenReplica:
        (each,) = [each for each in found.values() if each.uid == uid]
        return each

    def ready(self) -> int:
        return sum(each.ready for each in self.replicas.values())

    def run(self) -> None:
        """Until nothing changes any more, every replica being well."""
        for _ in range(200):
            before = (self.record, dict(self.replicas), dict(self.ended))
            self.settle()
            self.answer()
            if before == (self.record, self.replicas, self.ended):
                return
        raise AssertionError("it does not end")


def running(replicas: int = 2) -> World:
    world = World(service_of(replicas))
    world.run()
    assert world.status.phase is ServicePhase.RUNNING
    assert world.ready() == replicas
    return world
