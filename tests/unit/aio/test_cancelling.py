"""A task that is cancelled, or a loop that is left, frees its connection at once, and nothing is
left behind.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Self

import pytest

from cloud_ml.aio import AsyncCloudMlClient
from cloud_ml.aio.storage.client import AsyncStorage
from cloud_ml.errors import TransportError, WaitTimedOut
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.sdk.storage.transfers import Transfers
from support.fake_api import FakeApi, make_job
from support.fake_server import ACCESS_KEY, SECRET_KEY, FakeServer, serving


class Peer:
    """Says the head of an answer (or nothing) to everybody, and knows who is still there."""

    def __init__(self, says: bytes = b"") -> None:
        self.says = says
        self.here = 0
        self.most = 0
        self.changed = asyncio.Condition()
        self.endpoint = ""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._count(1)
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(self.says)
            await reader.read()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            await self._count(-1)

    async def _count(self, more: int) -> None:
        async with self.changed:
            self.here += more
            self.most = max(self.most, self.here)
            self.changed.notify_all()

    async def until(self, number: int) -> None:
        async with asyncio.timeout(60), self.changed:
            await self.changed.wait_for(lambda: self.here == number)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self, "127.0.0.1", 0, backlog=1024)
        self.endpoint = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    def client(self) -> AsyncCloudMlClient:
        return AsyncCloudMlClient(ACCESS_KEY, SECRET_KEY, self.endpoint)


def head(kind: str, chunk: bytes) -> bytes:
    start = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n{len(chunk):x}\r\n"
    return start.encode() + chunk + b"\r\n"


@pytest.fixture
def server() -> Iterator[FakeServer]:
    api = FakeApi()
    api.jobs["a"] = make_job("a", phase="Running")
    with serving(api) as fake:
        yield fake


def test_a_cancelled_wait_closes_its_connection() -> None:
    async def main() -> None:
        async with Peer() as peer, peer.client() as client:
            waiting = asyncio.create_task(client.describe_train_job("a"))
            await peer.until(1)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await peer.until(0)

    asyncio.run(main())


def test_a_time_limit_of_the_caller_ends_a_wait(server: FakeServer) -> None:
    async def main() -> None:
        async with (
            Peer() as peer,
            AsyncCloudMlClient(ACCESS_KEY, SECRET_KEY, server.endpoint) as client,
        ):
            job = await client.get_train_job("a")
            job._calls.transport = peer.client()._transport
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await job.wait()
            await peer.until(0)
            job._calls.transport = client._transport
            with pytest.raises(WaitTimedOut):
                await job.wait(timeout=0.001)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("says", "what"),
    [
        (head("text/plain", b"epoch 1\n"), "log"),
        (
            head(
                "text/event-stream",
                b'id: 1\nevent: gone\ndata: {"revision":1,"uid":"u","name":"a","org":"o"}\n\n',
            ),
            "all",
        ),
    ],
)
def test_a_loop_that_is_left_closes_its_connection(says: bytes, what: str) -> None:
    async def main() -> None:
        async with Peer(says) as peer, peer.client() as client:
            if what == "log":
                async with await client._jobs.log("a", follow=True) as answer:
                    async for chunk in answer:
                        assert chunk == b"epoch 1\n"
                        break
            else:
                async for change in client.watch_train_jobs():
                    assert change.job is None
                    break
            await peer.until(0)
            assert peer.most == 1

    asyncio.run(main())


def test_a_stream_that_is_closed_early_leaves_no_task_and_no_connection() -> None:
    async def main() -> None:
        async with Peer(head("text/plain", b"x" * 10)) as peer, peer.client() as client:
            answer = await client._jobs.log("a", follow=True)
            async with aclosing(answer.__aiter__()) as chunks:
                assert await anext(chunks) == b"x" * 10
            answer.close()
            answer.close()
            await peer.until(0)

    asyncio.run(main())


def test_a_thousand_waits_need_no_thread() -> None:
    """Sockets of both ends are of this process: as many as its limit of open files allows, at
    most a thousand.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(1000, (hard - 200) // 2 if hard > 0 else 1000)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * count + 200), hard))

    async def main() -> None:
        async with Peer() as peer, peer.client() as client:
            before = threading.active_count()
            waits = [asyncio.create_task(client.describe_train_job("a")) for _ in range(count)]
            await peer.until(count)
            assert threading.active_count() == before
            for wait in waits:
                wait.cancel()
            ends = await asyncio.gather(*waits, return_exceptions=True)
            assert {type(end) for end in ends} == {asyncio.CancelledError}
            await peer.until(0)

    try:
        asyncio.run(main())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_client_outlives_an_event_loop(server: FakeServer) -> None:
    client = AsyncCloudMlClient(ACCESS_KEY, SECRET_KEY, server.endpoint)

    async def ask() -> str:
        async with client:
            return (await client.whoami()).user

    assert asyncio.run(ask()) == asyncio.run(ask())


def test_a_cancelled_upload_ends_its_thread(tmp_path: Path) -> None:
    file = tmp_path / "big"
    file.write_bytes(os.urandom(1 << 20))

    async def main() -> None:
        async with Peer() as peer, peer.client() as client:
            sending = asyncio.create_task(client.storage.upload(file, "fds://cloudml/big"))
            await peer.until(1)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            await peer.until(0)
        assert not [thread for thread in threading.enumerate() if _has_work(thread)]

    asyncio.run(main())


def _has_work(thread: threading.Thread) -> bool:
    if not thread.name.startswith("cloudml-files"):
        return False
    thread.join(60)
    return thread.is_alive()


def test_transfers_wait_their_turn_and_progress_is_told_in_the_loop(
    server: FakeServer, tmp_path: Path
) -> None:
    for number in range(6):
        (tmp_path / str(number)).write_bytes(b"x" * 200_000)

    async def main() -> None:
        reports: list[tuple[int, int | None]] = []
        here = threading.get_ident()

        def progress(done: int, total: int | None) -> None:
            assert threading.get_ident() == here
            reports.append((done, total))

        async with AsyncCloudMlClient(ACCESS_KEY, SECRET_KEY, server.endpoint) as client:
            storage = AsyncStorage(client._transport, Transfers(parallel=2))
            uris = [f"fds://cloudml/{number}" for number in range(6)]
            sent = await asyncio.gather(
                *(storage.upload(tmp_path / uri[-1], uri, progress=progress) for uri in uris)
            )
            assert [one.size for one in sent] == [200_000] * 6
            assert await storage.download(uris[0], tmp_path / "back") == 200_000
        assert reports.count((200_000, 200_000)) >= 6

    asyncio.run(main())
    assert (tmp_path / "back").read_bytes() == b"x" * 200_000


def test_a_trainer_is_packed_and_sent(server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "task.py").write_text("print(1)")

    async def main() -> str:
        async with AsyncCloudMlClient(ACCESS_KEY, SECRET_KEY, server.endpoint) as client:
            return (
                await client.submit_train_job(TrainJob("b", "trainer.task", str(tmp_path)))
            ).name

    assert asyncio.run(main()) == "b"
    assert server.seen[-1].document["trainer_uri"].startswith("fds://cloudml/.trainers/")


def test_nonsense_in_place_of_http_is_told() -> None:
    async def main() -> None:
        for says in (
            b"hello\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-5\r\n",
        ):
            async with Peer(says) as peer, peer.client() as client:
                client._transport.retry = type(client._transport.retry)(attempts=1)
                with pytest.raises(TransportError):
                    await client.whoami()
                await peer.until(0)

    asyncio.run(main())
