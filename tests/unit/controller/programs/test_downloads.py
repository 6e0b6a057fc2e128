"""Trainers from the web, fetched for jobs by a real process."""

from __future__ import annotations

import asyncio
import hashlib
import http.server
import os
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from cloud_ml.controller.programs.downloads import Downloads
from cloud_ml.controller.programs.packages import Packages
from cloud_ml.engines.gang import TrainerSource
from cloud_ml.objects.memory import MemoryObjectStore
from cloud_ml.settings import TrainerSettings
from cloud_ml.usecases.jobs.trainer_uris import WebTrainer
from cloud_ml.usecases.offload import Offload
from support.git_server import serving_git
from support.web import Web, serving_web

pytestmark = pytest.mark.anyio
OPEN = TrainerSettings(url_allow="127.0.0.1")


@pytest.fixture
def web() -> Iterator[Web]:
    with serving_web() as web:
        yield web


@pytest.fixture
def offload() -> Iterator[Offload]:
    offload = Offload()
    yield offload
    offload.close()


def kept(folder: Path, source: TrainerSource) -> Path:
    """The file, as the engine finds it."""
    return Packages(MemoryObjectStore(), folder).file(source.digest, source.name)


async def arrived(downloads: Downloads, uid: str, trainer: WebTrainer) -> TrainerSource:
    async with asyncio.timeout(60):
        while (found := await downloads.get("org", uid, trainer)) is None:
            pass
        return found


async def test_attempts_of_a_job_run_the_same_bytes(
    web: Web, tmp_path: Path, offload: Offload
) -> None:
    trainer = WebTrainer(web.page("/t.tar.gz", b"first"), "t.tar.gz", None)
    first = await arrived(Downloads(tmp_path, OPEN, offload), "job-1", trainer)
    assert first == TrainerSource(hashlib.sha256(b"first").hexdigest(), "t.tar.gz")
    assert kept(tmp_path, first).read_bytes() == b"first"
    assert kept(tmp_path, first).stat().st_mode & 0o777 == 0o644
    web.page("/t.tar.gz", b"second")
    restarted = Downloads(tmp_path, OPEN, offload)
    assert await arrived(restarted, "job-1", trainer) == first
    second = await arrived(restarted, "job-2", trainer)
    assert kept(tmp_path, second).read_bytes() == b"second"
    assert web.seen == ["/t.tar.gz"] * 2
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == []


async def test_a_digest_in_the_uri_is_held(web: Web, tmp_path: Path, offload: Offload) -> None:
    url = web.page("/t.tar.gz?token=secret", b"bytes")
    downloads = Downloads(tmp_path, OPEN, offload)
    right, wrong = hashlib.sha256(b"bytes").hexdigest(), "0" * 64
    assert not (await arrived(downloads, "a", WebTrainer(url, "t.tar.gz", right))).problem
    refused = await arrived(downloads, "b", WebTrainer(url, "t.tar.gz", wrong))
    assert right in refused.problem
    assert "secret" not in refused.problem


async def test_what_must_not_be_reached_is_a_problem_of_the_job(
    web: Web, tmp_path: Path, offload: Offload
) -> None:
    url = web.page("/t.tar.gz", b"x")
    found = await arrived(
        Downloads(tmp_path, TrainerSettings(), offload), "a", WebTrainer(url, "t.tar.gz", None)
    )
    assert "loopback" in found.problem
    assert web.seen == []


async def test_a_tenants_slow_servers_hold_up_nobody_else(
    web: Web, tmp_path: Path, offload: Offload
) -> None:
    web.pages["/slow"] = lambda _: web.over.wait() and None
    fast = WebTrainer(web.page("/fast", b"x"), "fast", None)
    downloads = Downloads(tmp_path, replace(OPEN, url_parallel=2), offload)
    slow = [str(number) for number in range(4)]
    requests = [
        downloads.get("greedy", uid, WebTrainer(web.url("/slow"), "slow", None)) for uid in slow
    ]
    assert await asyncio.gather(*requests) == [None] * 4
    assert not (await arrived(downloads, "mine", fast)).problem
    tasks = [downloads._running[uid] for uid in slow]
    for uid in slow:
        downloads.forget(uid)
    await asyncio.wait(tasks)


async def test_a_job_that_is_stopped_ends_its_fetch(
    web: Web, tmp_path: Path, offload: Offload
) -> None:
    web.pages["/slow"] = lambda _: web.over.wait() and None
    downloads = Downloads(tmp_path, OPEN, offload)
    assert await downloads.get("org", "a", WebTrainer(web.url("/slow"), "slow", None)) is None
    task = downloads._running["a"]
    downloads.forget("a")
    await asyncio.wait({task})
    assert task.cancelled()
    assert list(tmp_path.iterdir()) == []


def test_files_come_from_open_folders_only(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "t.py").write_text("print()")
    (tmp_path / "secret").write_text("x")
    (tmp_path / "open" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "open" / "up").symlink_to(tmp_path)
    packages = Packages(MemoryObjectStore(), tmp_path / "packages")
    settings = TrainerSettings(folders=str(tmp_path / "open"))

    def problem(inside: str) -> str:
        return packages.from_file(PurePosixPath(tmp_path / inside), settings).problem

    assert problem("open/t.py") == ""
    for inside in ("secret", "open/link", "open/up/secret", "open", "open/none"):
        assert "does not exist" in problem(inside), inside


async def test_a_server_that_is_busy_is_asked_again(
    web: Web, tmp_path: Path, offload: Offload
) -> None:
    good = web.page("/t.tar.gz", b"bytes")
    answer = web.pages["/t.tar.gz"]

    def busy(handler: http.server.BaseHTTPRequestHandler) -> None:
        if len(web.seen) < 3:
            handler.send_error(503)
        else:
            answer(handler)

    web.pages["/t.tar.gz"] = busy
    settings = replace(OPEN, url_retry_s=0.0)
    found = await arrived(
        Downloads(tmp_path, settings, offload), "a", WebTrainer(good, "t.tar.gz", None)
    )
    assert (found.problem, kept(tmp_path, found).read_bytes()) == ("", b"bytes")
    assert web.seen == ["/t.tar.gz"] * 3


async def test_what_is_not_there_is_asked_for_once(
    web: Web, tmp_path: Path, offload: Offload
) -> None:
    settings = replace(OPEN, url_retry_s=0.0)
    found = await arrived(
        Downloads(tmp_path, settings, offload), "a", WebTrainer(web.url("/none"), "t", None)
    )
    assert "404" in found.problem
    assert len(web.seen) == 1


async def test_a_repository_is_kept_like_any_trainer(tmp_path: Path, offload: Offload) -> None:
    with serving_git(tmp_path / "repositories") as server:
        server.commit("ours", {"train.py": "print(1)"}, tag="v1")
        url = server.url("/ours/.git")
        downloads = Downloads(tmp_path / "kept", OPEN, offload)
        trainer = WebTrainer(url, "ours.tar", None, git=True, ref="v1")
        first = await arrived(downloads, "a", trainer)
        assert first.problem == ""
        with tarfile.open(kept(tmp_path / "kept", first)) as archive:
            assert archive.getnames() == ["ours", "ours/train.py"]
        server.commit("ours", {"train.py": "print(2)"})
        again = await arrived(Downloads(tmp_path / "kept", OPEN, offload), "b", trainer)
        assert again == first, "the same commit is the same bytes"
        other = await arrived(downloads, "b", WebTrainer(url, "ours.tar", None, git=True))
        assert other.digest != first.digest


async def test_what_a_server_left_that_was_killed_while_it_fetched_is_removed(
    tmp_path: Path, offload: Offload, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder with a whole repository, in the machine's folder for temporary files."""
    temporary = tmp_path / "tmp"
    temporary.mkdir(mode=0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    downloads = Downloads(tmp_path / "kept", OPEN, offload)
    used: set[Path] = set()

    class Looked(list[str]):
        def append(self, path: str) -> None:
            super().append(path)
            (folder,) = temporary.iterdir()
            os.utime(folder, (0, 0))
            downloads.sweep()
            assert folder.exists(), "it is in use"
            used.add(folder)

    with serving_git(tmp_path / "repositories") as server:
        server.commit("ours", {"train.py": "print(1)"})
        server.seen = Looked()
        trainer = WebTrainer(server.url("/ours/.git"), "ours.tar", None, git=True)
        assert (await arrived(downloads, "a", trainer)).problem == ""
    (folder,) = used
    assert not folder.exists()
    (folder / "repository").mkdir(parents=True)  # as if the server had been killed then
    other = temporary / "cloudml-fetch-of-another-server"
    other.mkdir()
    os.utime(other, (0, 0))
    restarted = Downloads(tmp_path / "kept", OPEN, offload)
    restarted.sweep()
    assert folder.exists(), "its program may go on without the server, for a while"
    os.utime(folder, (0, 0))
    restarted.sweep()
    assert list(temporary.iterdir()) == [other]
