"""Ports of services: one each, tried by the gateway before they count, kept, and free again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from cloud_ml.controller.routing.ports import Ports
from cloud_ml.controller.routing.route_publisher import RoutePublisher, route
from cloud_ml.domain.records import Key, Record
from cloud_ml.domain.services import spec as specs
from cloud_ml.domain.services.kind import ServiceRecord
from cloud_ml.domain.services.routes import Route
from cloud_ml.domain.services.status import ServiceStatus
from cloud_ml.models.services.model_service import ModelService
from support.replica_sockets import backend

pytestmark = pytest.mark.anyio
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Gateway:
    """Has what it was told; ``foreign`` are ports of somebody else."""

    def __init__(self, *foreign: int, up: bool = True) -> None:
        self.routes: dict[str, Route] = {}
        self.kept: list[str] = []
        self.foreign = foreign
        self.up = up

    @property
    def unbound(self) -> Mapping[int, str]:
        return {each.port: "in use" for each in self.routes.values() if each.port in self.foreign}

    def set(self, uid: str, route: Route) -> None:
        self.routes[uid] = route

    def drop(self, uid: str) -> None:
        self.routes.pop(uid, None)

    def keep(self, uids: Collection[str]) -> None:
        self.kept = list(uids)

    async def settled(self) -> bool:
        return self.up


def entrances(gateway: Gateway, *ranges: range, share: float = 1.0) -> RoutePublisher:
    return RoutePublisher(
        cast("Any", gateway), Ports(ranges, share), cast("Any", None), cast("Any", None)
    )


def service(uid: str, port: int = 0, org: str = "o", **fields: Any) -> ServiceRecord:
    model = ModelService("m", uid, "fds://bucket/m", **fields)
    key = Key("model_service", org, f"m/{uid}", uid)
    return Record(key, "me", 1, 1, NOW, NOW, specs.from_wire(model), ServiceStatus(port=port))


async def test_each_has_its_own_and_none_that_is_somebody_elses() -> None:
    gateway = Gateway(11, 13)
    here = entrances(gateway, range(10, 14), range(20, 21))
    here.begin([service("old", 12)])
    assert gateway.kept == ["old"]
    assert await here.choose(service("a")) == 10
    assert await here.choose(service("a")) == 10, "asked again before it was written down"
    assert await here.choose(service("b")) == 20
    assert await here.choose(service("c")) == 0, "none is left"
    assert "c" not in gateway.routes
    here.forget("a")
    assert await here.choose(service("c")) == 10


async def test_no_organisation_takes_the_ports_of_all_others() -> None:
    here = entrances(Gateway(), range(10, 14), share=0.5)
    here.begin([service("old", 12)])
    assert await here.choose(service("a")) == 10
    assert await here.choose(service("b")) == 0, "it has its share, though ports are free"
    assert "gateway.ports_share" in here.no_port("o")
    assert await here.choose(service("c", org="other")) == 11
    assert await here.choose(service("d", org="other")) == 13
    assert await here.choose(service("e", org="third")) == 0
    assert here.no_port("third") == (
        "no port is free: of the 4 of this server (gateway.ports), model services have 4; "
        "failed and stopped ones keep theirs until they are deleted"
    )
    here.forget("old")
    assert await here.choose(service("b")) == 12


async def test_ports_of_other_programs_are_counted_apart() -> None:
    here = entrances(Gateway(10, 11), range(10, 13))
    assert await here.choose(service("a")) == 12
    assert await here.choose(service("b")) == 0
    assert "of the 3 of this server (gateway.ports), model services have 1" in here.no_port("o")


async def test_without_a_gateway_a_port_is_given_nevertheless() -> None:
    assert await entrances(Gateway(10, up=False), range(10, 12)).choose(service("a")) == 11
    assert await entrances(Gateway(up=False), range(10, 12)).choose(service("a")) == 10


async def test_a_route_says_who_may_call_and_whether_anybody_is_to_answer() -> None:
    gateway = Gateway()
    here = entrances(gateway, range(10, 12))
    await here.show(service("a", 10), [], wait=False)
    assert gateway.routes["a"] == Route(10, "o", "m/a")
    await here.show(service("a", 10, access="open", save_mode=True), [], wait=False)
    assert gateway.routes["a"] == Route(10, "o", "m/a", open=True, wanted=False)
    await here.show(replace(service("a", 10), delete_requested_at=NOW), [], wait=False)
    assert not gateway.routes["a"].wanted


@pytest.mark.parametrize(
    ("stable", "tried", "share"),
    [(4, 2, 50), (5, 2, 50), (4, 1, 25), (2, 1, 50), (1, 1, 50), (4, 0, 0), (0, 1, 25)],
)
def test_a_candidate_has_its_share_unless_it_lacks_more_replicas_than_what_is_served(
    stable: int, tried: int, share: int
) -> None:
    made = service("a", 10, replicas=4)
    candidate = specs.Candidate(2, made.spec.submitted, 50)
    releases = [1] * stable + [2] * tried
    backends = [backend(f"u{number}", release=release) for number, release in enumerate(releases)]
    assert (
        route(replace(made, spec=replace(made.spec, candidate=candidate)), backends).share == share
    )
