from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from cloud_ml.domain.jobs.kind import TRAIN_JOB, TrainJobRecord
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.engines.base import Capacity
from cloud_ml.errors import InvalidRequest
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.usecases.jobs.logs import Selection
from support.platform import TRAINER, Served

pytestmark = pytest.mark.anyio


def submit(served: Served, **fields: object) -> TrainJobRecord:
    job = TrainJob("linear", "trainer.task", TRAINER, max_retries=3, **fields)  # type: ignore[arg-type]
    return served.platform.jobs.submit(served.admin.identity, job, Capacity(4000, 2**33))


async def read(served: Served, record: TrainJobRecord, selection: Selection) -> bytes:
    return b"".join([chunk async for chunk in served.platform.logs.read(record, selection)])


async def ended(served: Served, record: TrainJobRecord, attempt: int, output: bytes) -> None:
    """An attempt that printed ``output`` and failed."""
    key = await served.run(record.key.uid, attempt)
    served.engine.write(key, "master-0", output)
    served.engine.finish(key, 1)


async def next_chunk(chunks: AsyncIterator[bytes]) -> bytes:
    return await asyncio.wait_for(anext(chunks), 60)


async def test_attempts_follow_each_other_and_start_on_a_new_line(served: Served) -> None:
    record = submit(served)
    await ended(served, record, 1, b"one\ntwo")
    await ended(served, record, 2, b"three\n")
    await ended(served, record, 3, b"four\n")
    assert await read(served, record, Selection()) == b"one\ntwo\nthree\nfour\n"
    assert await read(served, record, Selection(attempt=2)) == b"three\n"
    assert await read(served, record, Selection(task="master-0", attempt=1)) == b"one\ntwo"
    assert await read(served, record, Selection(attempt=4)) == b""


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (0, b""),
        (1, b"f\n"),
        (2, b"e\nf\n"),
        (3, b"d\ne\nf\n"),
        (4, b"c\nd\ne\nf\n"),
        (6, b"a\nb\nc\nd\ne\nf\n"),
        (99, b"a\nb\nc\nd\ne\nf\n"),
    ],
)
async def test_the_last_lines_are_counted_over_all_attempts(
    served: Served, lines: int, expected: bytes
) -> None:
    record = submit(served)
    await ended(served, record, 1, b"a\nb\nc")
    await ended(served, record, 2, b"d\n")
    await ended(served, record, 3, b"e\nf\n")
    assert await read(served, record, Selection(lines=lines)) == expected
    assert await read(served, record, Selection(lines=lines, attempt=3)) == b"".join(
        b"e\nf\n".splitlines(keepends=True)[-lines:] if lines else []
    )


async def test_a_job_without_output_has_an_empty_log(served: Served) -> None:
    assert await read(served, submit(served), Selection()) == b""


@pytest.mark.parametrize(
    "selection",
    [Selection(task="worker-0"), Selection(attempt=5), Selection(attempt=0), Selection(lines=-1)],
)
async def test_what_cannot_be_selected_is_refused_before_the_first_byte(
    served: Served, selection: Selection
) -> None:
    with pytest.raises(InvalidRequest):
        served.platform.logs.read(submit(served), selection)


async def test_a_follower_sees_every_attempt_and_the_end(served: Served) -> None:
    record = submit(served)
    uid = record.key.uid
    chunks = served.platform.logs.read(record, Selection(follow=True))
    first = asyncio.ensure_future(next_chunk(chunks))
    served.move(uid, Phase.STARTING)
    key = await served.run(uid)
    served.engine.write(key, "master-0", b"first\n")
    assert await first == b"first\n"
    served.engine.write(key, "master-0", b"more\n")
    assert await next_chunk(chunks) == b"more\n"
    served.engine.finish(key, 1)
    second = asyncio.ensure_future(next_chunk(chunks))
    served.move(uid, Phase.RESTARTING, attempt=2)
    served.move(uid, Phase.STARTING)
    again = await served.run(uid, 2)
    served.engine.write(again, "master-0", b"second\n")
    assert await second == b"second\n"
    served.engine.finish(again, 0)
    served.move(uid, Phase.SUCCEEDED)
    with pytest.raises(StopAsyncIteration):
        await next_chunk(chunks)


async def test_a_follower_of_one_attempt_ends_with_it(served: Served) -> None:
    record = submit(served)
    served.move(record.key.uid, Phase.STARTING)
    await ended(served, record, 1, b"first\n")
    served.move(record.key.uid, Phase.RESTARTING, attempt=2)
    assert (
        await asyncio.wait_for(read(served, record, Selection(attempt=1, follow=True)), 5)
        == b"first\n"
    )


async def test_a_follower_may_begin_with_the_last_lines(served: Served) -> None:
    record = submit(served)
    served.move(record.key.uid, Phase.STARTING)
    key = await served.run(record.key.uid)
    served.engine.write(key, "master-0", b"a\nb\nc\n")
    chunks = served.platform.logs.read(record, Selection(lines=1, follow=True))
    assert await next_chunk(chunks) == b"c\n"
    served.engine.write(key, "master-0", b"d\n")
    assert await next_chunk(chunks) == b"d\n"
    await chunks.aclose()


@pytest.mark.parametrize("phase", [Phase.SUCCEEDED, Phase.FAILED])
async def test_following_a_job_that_is_over_gives_all_and_ends(
    served: Served, phase: Phase
) -> None:
    record = submit(served)
    served.move(record.key.uid, Phase.STARTING)
    await ended(served, record, 1, b"all\n")
    served.move(record.key.uid, phase)
    assert await asyncio.wait_for(read(served, record, Selection(follow=True)), 5) == b"all\n"


async def test_following_a_saved_or_a_removed_job_ends(served: Served) -> None:
    saved = submit(served, save_mode=True)
    assert await asyncio.wait_for(read(served, saved, Selection(follow=True)), 5) == b""
    served.store.delete(TRAIN_JOB, saved.key.uid, fence=None)
    assert await asyncio.wait_for(read(served, saved, Selection(follow=True)), 5) == b""


async def test_a_follower_of_a_waiting_job_ends_when_the_server_does(served: Served) -> None:
    record = submit(served)
    following = asyncio.ensure_future(read(served, record, Selection(follow=True)))
    await asyncio.sleep(0)
    served.platform.hub.close()
    assert await asyncio.wait_for(following, 60) == b""
