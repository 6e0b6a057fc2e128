"""A call goes to the stable release or to the candidate: how many, which by name, and what is
counted of each.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cloud_ml.gateway.answer_heads import translate_head
from cloud_ml.gateway.releases import Split, grpc_mark
from cloud_ml.net.http2 import frames
from support.gateway_world import OK, answers, dies, world

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("share", [0, 1, 10, 25, 33, 50, 99, 100])
def test_of_any_hundred_in_a_row_exactly_the_share(share: int) -> None:
    split = Split()
    dealt = [split.turn(share) for _ in range(1000)]
    assert {sum(dealt[at : at + 100]) for at in range(900)} == {share}
    for size in (10, 20, 50):
        found = {sum(dealt[at : at + size]) for at in range(900)}
        assert max(found) - min(found) <= 1, "evenly, not in bursts"


async def test_the_candidate_has_its_share_whoever_has_less_to_do(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        for name in ("a1", "b1", "c2"):
            await here.replica(name, answers(name.encode()))
        here.route("a1", "b1", "c2", candidate=2, share=25)
        found = [await here.call().found for _ in range(40)]
        assert (found.count("c2"), found.count("a1")) == (10, 15)
        assert {str(here.call().release) for _ in range(8)} == {"1", "2"}
        here.route("a1", "b1", "c2", candidate=2, share=0)
        assert "c2" not in [await here.call().found for _ in range(20)]
        here.route("a1", "b1", "c2")  # promoted: all are alike while the old ones go
        assert {await here.call().found for _ in range(12)} == {"a1", "b1", "c2"}


async def test_what_the_candidate_does_not_answer_goes_to_what_is_served_and_is_counted(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as here:
        await here.replica("good1", answers(b"ok"))
        await here.replica("bad2", dies)
        here.route("good1", "bad2", "gone2", candidate=2, share=50)
        assert [await here.call().found for _ in range(10)] == ["ok"] * 10
        figures = here.service.figures()
        assert figures.failed == 0
        assert 0 < figures.releases["2"].errors == figures.releases["2"].requests <= 5
        assert (figures.releases["1"].requests, figures.releases["1"].errors) == (10, 0)
        assert figures.sides["candidate"].errors == figures.releases["2"].errors
        assert figures.sides["stable"].seconds > 0
        here.route("good1")
        assert set(here.service.figures().releases) == {"1"}, "one that went is forgotten"
        assert here.service.figures().sides["candidate"].errors, "not what such ones did in all"


async def test_the_candidate_stands_in_for_nobody(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.replica("new2", answers(b"nw"))
        here.route("gone1", "new2", candidate=2, share=50)
        assert [await each.found for each in [here.call() for _ in range(6)]] == [503, "nw"] * 3


async def test_who_asks_for_a_release_gets_it_and_nothing_else(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.replica("old1", answers(b"od"))
        await here.replica("new2", answers(b"nw"))
        here.route("old1", "new2", candidate=2, share=0)
        for release, answer in (
            ("stable", "od"),
            ("1", "od"),
            ("candidate", "nw"),
            ("2", "nw"),
            ("3", 400),
            ("", "od"),
        ):
            assert await here.call(release=release).found == answer, release
        assert here.call(release="\x80" * 99).found.result() == 400
        here.route("old1", candidate=2, share=0)
        late = here.call(release="candidate")
        assert not late.found.done(), "a candidate that does not answer yet is waited for"
        here.route("old1", "new2", candidate=2, share=0)
        assert await late.found == "nw"
        here.route("old1")
        assert here.call(release="candidate").found.result() == 400
        assert here.service.figures().refused == 3


async def test_an_answer_that_is_an_error_and_one_that_is_too_late_count_against_it(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as here:
        await here.replica(
            "new2", lambda writer: writer.write(OK.replace(b"200 OK", b"400 No") + b"no")
        )
        await here.replica("slow3", lambda _: None)
        here.route("new2", candidate=2, share=100)
        assert await here.call().found == "no"
        here.route("slow3", candidate=3, share=100)
        late = here.call()
        while not here.calls.get("slow3"):
            await asyncio.sleep(0.001)
        late.deadline = 0.0
        here.service.tick(asyncio.get_running_loop().time())
        assert late.found.result() == 504
        figures = here.service.figures()
        assert (figures.releases["3"].requests, figures.releases["3"].errors) == (1, 1)
        assert (figures.sides["candidate"].requests, figures.sides["candidate"].errors) == (2, 2)


async def test_what_a_replica_calls_itself_is_dropped(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        head = b"HTTP/1.1 200 OK\r\nX-Own: kept\r\nCloudML-Release: 9\r\nContent-Length: 2\r\n\r\n"
        await here.replica("liar2", lambda writer: writer.write(head + b"ok"))
        here.route("liar2")
        call = here.call()
        assert await call.found == "ok"
        assert call.fields == b"X-Own: kept\r\n"
    status, block = translate_head([(b":status", b"200"), (b"cloudml-release", b"9")], 100)
    assert (status, block + grpc_mark(2)) == (200, b"\x88" + frames.literal("cloudml-release", "2"))
