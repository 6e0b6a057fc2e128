"""The programs in examples/sdk, run as a user runs them, and what the awaiting SDK does on a
real server.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from cloud_ml.aio import AsyncCloudMlClient
from cloud_ml.errors import AlreadyExists, NotFound
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.sdk.storage.transfers import Transfers
from support.environments import EXAMPLES
from support.server import RealServer, serving

pytestmark = pytest.mark.xdist_group("sdk-examples")

PROGRAMS = EXAMPLES / "sdk"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """A server of their own: one of them watches every job there is."""
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def awaiting(server: RealServer) -> AsyncCloudMlClient:
    key = server.credentials
    return AsyncCloudMlClient(key["access_key"], key["secret_key"], server.endpoint)


def start(server: RealServer, program: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", str(PROGRAMS / program), *arguments],
        env=server.environment(server.user_home, **server.known),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(server: RealServer, program: str, *arguments: str) -> tuple[str, str]:
    with start(server, program, *arguments) as running:
        out, err = running.communicate(timeout=100)
    assert running.returncode == 0, f"{out}\n{err}"
    return out, err


def test_submit_and_follow(server: RealServer) -> None:
    out, err = run(server, "submit_and_follow.py")
    assert "epoch 5: slope 1.67" in out
    assert "slope: 1.8" in out
    assert [line.split()[1] for line in out.splitlines()[-4:]] == [
        "Submitted",
        "Starting",
        "Started",
        "Completed",
    ]
    assert err == ""


def test_submit_and_follow_while_changes_are_shown(server: RealServer) -> None:
    out, err = run(server, "submit_and_follow_async.py")
    assert "epoch 5: slope 1.67" in out
    assert err.splitlines()[-1].endswith(": Succeeded")


def test_many_jobs_of_which_the_best_is_told(server: RealServer) -> None:
    out, _ = run(server, "many_jobs.py")
    assert out.splitlines()[-1] == "best: 1.0"
    assert out.count("rate ") == 4


def test_files_with_progress(server: RealServer, tmp_path: Path) -> None:
    file = tmp_path / "data.bin"
    file.write_bytes(os.urandom(300_000))
    out, err = run(server, "files_with_progress.py", str(file), "fds://cloudml/data.bin")
    assert out.splitlines()[1] == "the same"
    assert "sent: 300,000 of 300,000 bytes" in err


def test_watching_everything_until_a_job_has_ended(server: RealServer) -> None:
    client = server.client()
    with start(server, "watch_everything.py", "1") as watching:
        # From here one cannot see whether it watches already: one of these jobs will be the first
        # that it sees.
        for number in range(20):
            client.submit_train_job(
                TrainJob(f"watched-{number}", "trainer.task", str(PROGRAMS))
            ).wait(60)
            if watching.poll() is not None:
                break
        out, err = watching.communicate(timeout=60)
    assert watching.returncode == 0, err
    assert " is Succeeded: " in out


def test_without_a_server_examples_say_what_is_missing(server: RealServer) -> None:
    environment = server.environment(
        server.user_home, **{**server.known, "CLOUDML_ENDPOINT": "http://127.0.0.1:9"}
    )
    command = [sys.executable, str(PROGRAMS / "submit_and_follow.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "nothing listens at http://127.0.0.1:9" in done.stderr
    assert "Traceback" not in done.stderr


def test_many_tasks_wait_for_one_job_and_each_other_face_sees_the_same(
    server: RealServer, awaiting: AsyncCloudMlClient, tmp_path: Path
) -> None:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "task.py").write_text("import sys\nprint(open(sys.argv[1]).read())")
    client = server.client()

    async def main() -> None:
        async with awaiting:
            args = ["fds://cloudml/go"]
            spec = TrainJob(
                "waited-for", "trainer.task", str(tmp_path), job_args=args, save_mode=True
            )
            job = await awaiting.submit_train_job(spec)
            with pytest.raises(AlreadyExists):
                await awaiting.submit_train_job(spec)
            threads = set(threading.enumerate())
            waits = [asyncio.create_task(job.wait()) for _ in range(150)]
            log = asyncio.create_task(_read(job.logs(follow=True)))
            changes = [change async for change in _until_saved(job.watch())]
            assert changes == ["Saved"]
            assert not set(threading.enumerate()) - threads  # one of before may have ended
            await awaiting.storage.upload(b"gone", "fds://cloudml/go")
            log.cancel()
            await job.start()
            ended = await asyncio.gather(*waits)
            assert {one.phase for one in ended} == {"Succeeded"}
            assert "gone" in (await _read(job.logs())).decode()
            assert (await awaiting.train_job_tasks("waited-for")).attempt == 1
            assert client.describe_train_job("waited-for") == await job.refresh()
            await job.delete()
            await job.wait_until_gone()
            with pytest.raises(NotFound):
                await job.refresh()

    asyncio.run(main())


def test_a_source_that_awaits_is_stored_as_it_comes(
    server: RealServer, awaiting: AsyncCloudMlClient
) -> None:
    async def source() -> AsyncIterator[bytes]:
        for number in range(7):
            yield bytes([number]) * 100_000

    async def main() -> None:
        progress: list[tuple[int, int | None]] = []
        async with awaiting:
            awaiting.storage._transfers = Transfers(part_size=256 * 1024)
            stored = await awaiting.storage.upload_stream(
                source(),
                "fds://cloudml/as-it-comes",
                progress=lambda done, total: progress.append((done, total)),
            )
            assert stored.size == 700_000
            async with await awaiting.storage.open("fds://cloudml/as-it-comes") as answer:
                assert await answer.read() == b"".join([chunk async for chunk in source()])
        assert progress == [(262_144, None), (524_288, None), (700_000, None)]

    asyncio.run(main())


async def _read(chunks: AsyncIterator[bytes]) -> bytes:
    return b"".join([chunk async for chunk in chunks])


async def _until_saved(jobs: AsyncIterator[object]) -> AsyncIterator[str]:
    async for job in jobs:
        yield job.phase  # type: ignore[attr-defined]
        return
