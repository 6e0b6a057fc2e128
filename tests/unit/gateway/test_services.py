"""What the gateway does with a call when replicas refuse, die or are not there: replicas are
real sockets here.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cloud_ml.gateway.access import PREDICT
from cloud_ml.gateway.answers import MISSING, STOPPED, WRONG, deleted
from support.gateway_world import OK, answers, dies, world

pytestmark = pytest.mark.anyio


async def test_the_one_with_the_least_to_do(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        for name in ("a", "b"):
            await here.replica(name, answers(b"ok"))
        here.route("a", "b")
        calls = [here.call() for _ in range(10)]
        assert [await each.found for each in calls] == ["ok"] * 10
        assert here.calls == {"a": 5, "b": 5}
        assert here.service.idle


async def test_another_one_where_it_may_be_repeated(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.replica("bad", dies)
        await here.replica("good", answers(b"ok"))
        here.route("bad", "good")
        assert [await here.call().found for _ in range(4)] == ["ok"] * 4
        assert here.calls["bad"], "it was tried"
        here.route("bad")
        assert await here.call(safe=False).found == 503, (
            "it may have begun, and may not be repeated"
        )
        assert await here.call().found == 503, "each try failed"


async def test_where_nobody_listens_it_waits_for_who_comes(tmp_path: Path) -> None:
    async with world(tmp_path, waiting_s=15.0) as here:
        here.route("late")
        early = here.call(safe=False)
        await asyncio.sleep(0.1)
        assert not early.found.done()
        await here.replica("late", answers(b"ok"))
        assert await early.found == "ok", "nobody had begun, so it is sent again whatever it is"


async def test_nobody_comes(tmp_path: Path) -> None:
    async with world(tmp_path, waiting=2) as here:
        here.route()
        calls = [here.call() for _ in range(3)]
        assert calls[2].found.result() == 429, "no more than so many wait"
        assert [await each.found for each in calls[:2]] == [503, 503]
        here.route(is_served=False)
        assert here.call().found.result() == 503


@pytest.mark.parametrize(("deleting", "status"), [(False, 503), (True, 404)])
async def test_a_call_that_waits_when_the_service_is_stopped_or_deleted(
    tmp_path: Path, deleting: bool, status: int
) -> None:
    async with world(tmp_path, waiting_s=60.0) as here:
        here.route()
        early = here.call()
        here.route(is_served=False, deleting=deleting)
        assert early.found.result() == status, "at once"
        assert here.call().found.result() == status


async def test_a_call_under_way_when_the_service_is_deleted(tmp_path: Path) -> None:
    async with world(tmp_path, waiting_s=60.0) as here:
        await here.replica("slow", lambda _: None)
        here.route("slow")
        early = here.call()
        while not here.calls:
            await asyncio.sleep(0.001)
        here.route(is_served=False, deleting=True)
        here.service.close()
        assert early.found.result() == 404


async def test_strangers_do_not_hear_that_a_service_is_being_deleted(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        here.route(is_served=False, deleting=True)
        for token, refusal in (("", MISSING), ("cmt1.x.1.y", WRONG)):
            assert here.service.refusal(token, PREDICT) is refusal


def test_what_is_said_of_a_service_that_is_deleted_or_stopped() -> None:
    assert deleted("linear/v1").message == (
        "there is no model service linear v1: it is being deleted"
    )
    assert STOPPED.fields == b"", "nobody waits for what does not come back by itself"


async def test_too_many_under_way_and_who_gives_up(tmp_path: Path) -> None:
    async with world(tmp_path, in_flight=2) as here:
        await here.replica("slow", lambda _: None)
        here.route("slow")
        calls = [here.call() for _ in range(3)]
        assert calls[2].found.result() == 429
        while here.calls != {"slow": 2}:
            await asyncio.sleep(0.001)
        calls[0].found.set_result("gave up")
        late = calls[1]
        late.deadline = 0.0
        here.service.tick(asyncio.get_running_loop().time())
        assert late.found.result() == 504
        assert here.service.idle
        assert here.service.figures().requests == 3


async def test_one_that_left_the_route_gets_nothing_new_and_ends_what_it_has(
    tmp_path: Path,
) -> None:
    held: list[asyncio.StreamWriter] = []
    async with world(tmp_path) as here:
        await here.replica("old", held.append)
        await here.replica("new", answers(b"on"))
        here.route("old")
        first = here.call()
        while not held:
            await asyncio.sleep(0.001)
        here.route("new")
        assert [await here.call().found for _ in range(3)] == ["on"] * 3
        assert here.calls["old"] == 1
        held[0].write(OK + b"ok")
        assert await first.found == "ok"


async def test_a_replica_that_refuses_does_not_prolong_the_wait(tmp_path: Path) -> None:
    """All waits of a call together are bounded, and its deadline is set once."""
    loop = asyncio.get_running_loop()
    async with world(tmp_path, waiting_s=0.4) as here:
        here.route("absent")
        begun = loop.time()
        call = here.call(safe=False, seconds=15.0)
        assert await call.found == 503
        assert loop.time() - begun < 5.0
        assert call.attempts > 1, "it was tried again meanwhile"
        assert here.call(safe=False, seconds=0.0).found.result() == 504, (
            "its own deadline is the earlier one"
        )


async def test_a_replica_that_breaks_a_rule_is_not_used_again_at_once(tmp_path: Path) -> None:
    async with world(tmp_path, waiting_s=0.1) as here:
        await here.replica(
            "hostile", lambda writer: writer.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)
        )
        here.route("hostile")
        assert await here.call().found == 502
        assert await here.call().found == 503
        assert here.calls["hostile"] == 1
        assert here.service.figures().hung_up == 1


async def test_an_answer_that_begins_and_pauses(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.replica(
            "slow", lambda writer: writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\na")
        )
        await here.replica("head", lambda writer: writer.write(b"HTTP/1.1 2"))
        for name in ("slow", "head"):
            here.route(name)
            call = here.call()
            while not here.calls.get(name):
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.01)  # the beginning of the answer arrives
            limits = here.limits
            for second in range(int(limits.stalled_s) + limits.head_s):
                here.service.tick(float(second - 1_000))
            assert await call.found == 502


async def test_the_time_of_a_call_is_that_of_its_service_within_the_gateways(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, timeout_s=10.0) as here:
        found = []
        for seconds in (0.0, 0.2, 99.0):
            here.route("a", timeout_s=seconds)
            found.append(here.service.timeout_s)
        assert found == [10.0, 0.2, 10.0]
