"""Following a log: as many as like, each gets every byte once, and nothing is held when they
have gone.
"""

from __future__ import annotations

import asyncio
import shutil
from contextlib import aclosing
from pathlib import Path

import pytest

from cloud_ml.engines.gang import GangKey
from cloud_ml.engines.local.ledger import Ledger
from cloud_ml.engines.local.logs.following import Followers
from cloud_ml.engines.local.logs.logfile import LogReader, LogWriter

pytestmark = pytest.mark.anyio
KEY, MANY = GangKey("job", 1), 300
PATIENCE_S = 20


def descriptors() -> set[str]:
    return {one.name for one in Path("/proc/self/fd").iterdir()}


class Attempt:
    """An attempt whose log a test writes."""

    def __init__(self, root: Path) -> None:
        self.ledger = Ledger(root)
        self.ledger.create()
        self.over = False
        self.folder = self.ledger.log_folder(KEY)
        self.folder.mkdir(parents=True)
        self.log = LogWriter(self.folder, "master-0", 64 << 20)
        self.followers = Followers(self.ledger, lambda _: self.over)

    def end(self) -> None:
        self.over = True
        report = self.ledger.reports / f"{KEY}.json"
        report.with_suffix(".new").write_text("{}")
        report.with_suffix(".new").replace(report)

    async def follow(self, heard: asyncio.Queue[bytes] | None = None) -> bytes:
        whole = bytearray()
        reader = LogReader(self.folder, "master-0")
        async with aclosing(self.followers.follow(KEY, "master-0", reader)) as chunks:
            async for chunk in chunks:
                whole += chunk
                if heard is not None:
                    heard.put_nowait(chunk)
        return bytes(whole)


@pytest.fixture
def attempt(tmp_path: Path) -> Attempt:
    return Attempt(tmp_path / "engine")


async def test_more_than_a_user_may_have_watches_follow_one_log(attempt: Attempt) -> None:
    attempt.log.write(b"before\n")
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    async with asyncio.timeout(PATIENCE_S):
        many = [asyncio.create_task(attempt.follow(heard)) for _ in range(MANY)]
        for number in range(5):
            for _ in range(MANY):
                await heard.get()
            attempt.log.write(b"line %d\n" % number)
        attempt.end()
        found = set(await asyncio.gather(*many))
    assert found == {b"before\n" + b"".join(b"line %d\n" % number for number in range(5))}


async def test_one_who_is_far_behind_reads_the_file_and_misses_nothing(attempt: Attempt) -> None:
    """What is kept for all is a megabyte; more is written while he is held up."""
    async with asyncio.timeout(PATIENCE_S):
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        quick = asyncio.create_task(attempt.follow(heard))
        reader = LogReader(attempt.folder, "master-0")
        slow = attempt.followers.follow(KEY, "master-0", reader)
        attempt.log.write(b"first\n")
        got = await anext(slow)
        size = len(await heard.get())
        for number in range(48):
            attempt.log.write(b"%060d\n" % number * 1024)
        while size < len(b"first\n") + 48 * 61 * 1024:
            size += len(await heard.get())
        attempt.end()
        got += b"".join([chunk async for chunk in slow])
        assert got == await quick
    assert got.startswith(b"first\n")
    assert len(got) == len(b"first\n") + 48 * 61 * 1024


async def test_nothing_is_held_when_the_last_one_has_gone(attempt: Attempt) -> None:
    before = descriptors()
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    async with asyncio.timeout(PATIENCE_S):
        some = [asyncio.create_task(attempt.follow(heard)) for _ in range(3)]
        attempt.log.write(b"one\n")
        for _ in some:
            await heard.get()
        for one in some:
            one.cancel()
        await asyncio.gather(*some, return_exceptions=True)
    assert descriptors() == before
    looking = [task for task in asyncio.all_tasks() if task.get_name().startswith("log of")]
    assert all(task.cancelling() for task in looking)


async def test_who_comes_when_the_job_is_being_deleted_makes_nothing_anew(attempt: Attempt) -> None:
    attempt.log.write(b"before\n")
    attempt.ledger.claim(KEY)
    attempt.ledger.forget(KEY.job_uid)
    attempt.end()
    async with asyncio.timeout(PATIENCE_S):
        assert await attempt.follow() == b""
    assert not list(attempt.ledger.jobs.iterdir())


async def test_who_comes_before_the_attempt_is_claimed_hears_all(attempt: Attempt) -> None:
    shutil.rmtree(attempt.folder)
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    async with asyncio.timeout(PATIENCE_S):
        early = asyncio.create_task(attempt.follow(heard))
        while not attempt.folder.exists():
            await asyncio.sleep(0)
        log = LogWriter(attempt.folder, "master-0", 64 << 20)
        log.write(b"one\n")
        assert await heard.get() == b"one\n"
        log.close()
        attempt.end()
        assert await early == b"one\n"


async def test_where_no_watch_can_be_had_the_log_is_looked_at(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left() -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("cloud_ml.linux.Watch", none_left)
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    async with asyncio.timeout(PATIENCE_S):
        follower = asyncio.create_task(attempt.follow(heard))
        attempt.log.write(b"one\n")
        assert await heard.get() == b"one\n"
        attempt.log.write(b"two\n")
        attempt.end()
        assert await follower == b"one\ntwo\n"
