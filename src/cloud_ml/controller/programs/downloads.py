"""Trainers from the web: fetched in the background by a process of their own, kept by digest like
all others.

A fetch belongs to a job: its first attempt fetches, later ones run the same bytes, also after the
server was started again. Nothing waits here: a pass asks again until the fetch has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from weakref import WeakValueDictionary

import cloud_ml
from cloud_ml.controller.programs.packages import DRAFT_PREFIX
from cloud_ml.engines.gang import TrainerSource
from cloud_ml.fetching.task import Task
from cloud_ml.settings import TrainerSettings
from cloud_ml.usecases.jobs.trainer_uris import WebTrainer
from cloud_ml.usecases.offload import Offload

logger = logging.getLogger(__name__)

_PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); from cloud_ml.fetching.program import main; sys.exit(main())"
_SOURCES = str(Path(cloud_ml.__file__).parents[1])
_MARGIN_S = 15.0
_REPORT = 64 * 1024
_FIRST_LOOK_S = 1.0
_KEPT_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "LANG")


class Downloads:
    """Fetches for jobs, a few at once.

    Args:
        folder: The folder of packages; see ``packages``.
        settings: The operator's bounds.
        user: The user and group id of the fetching process, where this process is root; 0: its own.
    """

    def __init__(
        self, folder: Path, settings: TrainerSettings, offload: Offload, *, user: int = 0
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._offload = offload
        self._user = user
        server = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
        self._prefix = f"cloudml-fetch-{server}-"  # so that this server finds its own
        self._private: set[str] = set()
        self._running: dict[str, asyncio.Task[TrainerSource]] = {}
        self._room = asyncio.Semaphore(max(settings.url_parallel, 1))
        self._shares: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def get(self, org: str, uid: str, trainer: WebTrainer) -> TrainerSource | None:
        """The trainer of the job ``uid``; ``None`` while it is on its way.

        An organisation has half of the fetches at once, so that its slow servers hold up nobody
        else's.
        """
        if (task := self._running.get(uid)) is None:
            if (known := await self._offload(self._find_earlier, uid, trainer)) is not None:
                return known
            task = self._running[uid] = asyncio.create_task(self._fetch(org, uid, trainer))
        await asyncio.wait({task}, timeout=_FIRST_LOOK_S)
        if not task.done():
            return None
        self._running.pop(uid, None)
        return task.result()

    def forget(self, uid: str) -> None:
        """The job needs nothing any more: a fetch that is under way ends."""
        if (task := self._running.pop(uid, None)) is not None:
            task.cancel()

    def sweep(self) -> None:
        """Remove the folders of fetches whose server was killed. Blocking.

        Their program went on without it, until its time was over.
        """
        oldest = time.time() - self._settings.url_timeout_s - _MARGIN_S
        for folder in Path(tempfile.gettempdir()).glob(f"{self._prefix}*"):
            with contextlib.suppress(OSError):
                if str(folder) not in self._private and folder.lstat().st_mtime < oldest:
                    shutil.rmtree(folder)

    async def _fetch(self, org: str, uid: str, trainer: WebTrainer) -> TrainerSource:
        if (share := self._shares.get(org)) is None:
            share = self._shares[org] = asyncio.Semaphore(max(self._settings.url_parallel // 2, 1))
        async with share, self._room:
            descriptor, draft = await self._offload(self._draft)
            try:
                problem = await self._fetch_with_retries(trainer, descriptor)
                if not problem:
                    return await self._offload(self._keep, uid, trainer, Path(draft))
                return TrainerSource(
                    "", trainer.name, f"the trainer {trainer.url.partition('?')[0]}: {problem}"
                )
            finally:
                os.close(descriptor)
                # Use shield, so that the draft is removed even if this task is cancelled.
                await asyncio.shield(self._offload(Path(draft).unlink, missing_ok=True))

    async def _fetch_with_retries(self, trainer: WebTrainer, descriptor: int) -> str:
        """Fetch, again where the network failed; returns what went wrong, if anything did."""
        tries = max(1, self._settings.url_tries)
        for number in range(1, tries + 1):
            report = await self._run(trainer, descriptor)
            problem = str(report.get("problem", ""))
            if not problem or not report.get("passing") or number == tries:
                return f"{problem} (tried {number} times)" if problem and number > 1 else problem
            await asyncio.sleep(self._settings.url_retry_s * 2 ** (number - 1))
            await self._offload(_rewind, descriptor)
        raise AssertionError

    async def _run(self, trainer: WebTrainer, descriptor: int) -> Mapping[str, object]:
        """Let the program write to the draft; returns its report."""
        settings = self._settings
        folder = await self._offload(self._private_folder) if trainer.git else ""
        task = Task(
            url=trainer.url,
            allow=tuple(settings.url_allow.split(",")),
            size_limit=settings.url_size_limit_bytes,
            timeout_s=settings.url_timeout_s,
            redirects=settings.url_redirects,
            user=self._user,
            folder=folder,
            ref=trainer.ref,
            subdirectory=trainer.subdirectory,
            name=trainer.name.partition(".")[0] or "trainer",
        )
        try:
            return await self._program(task, descriptor)
        finally:
            if folder:
                # Use shield, so that the folder is removed even if this task is cancelled.
                await asyncio.shield(self._offload(shutil.rmtree, folder, ignore_errors=True))
                self._private.discard(folder)

    async def _program(self, task: Task, descriptor: int) -> Mapping[str, object]:
        # -I and -S: no variables and no site packages decide what is imported. A session of its
        # own, so that the whole group can be killed.
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", "-B", "-c", _PROGRAM, _SOURCES,
            stdin=asyncio.subprocess.PIPE, stdout=descriptor, stderr=asyncio.subprocess.PIPE,
            env={name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
            cwd="/", start_new_session=True,
        )  # fmt: skip
        try:
            async with asyncio.timeout(task.timeout_s + _MARGIN_S):
                _, output = await process.communicate(json.dumps(asdict(task)).encode())
        except TimeoutError:
            return {"problem": f"it did not arrive within {task.timeout_s:g} s"}
        finally:
            with contextlib.suppress(ProcessLookupError):  # and with it the git that it has started
                os.killpg(process.pid, signal.SIGKILL)
            if process.returncode is None:
                await asyncio.shield(process.wait())
        try:
            report = json.loads(output[-_REPORT:])
        except ValueError:
            report = None
        if not isinstance(report, dict):
            logger.warning(
                "the program that fetches trainers failed: %s",
                output[-2000:].decode(errors="replace"),
            )
            return {"problem": f"fetching it failed (exit code {process.returncode})"}
        return report

    def _private_folder(self) -> str:
        """A folder outside of the data folder, which the user of the program may not enter."""
        folder = tempfile.mkdtemp(prefix=self._prefix)
        self._private.add(folder)
        if self._user:
            os.chown(folder, self._user, self._user)
        return folder

    def _draft(self) -> tuple[int, str]:
        self._folder.mkdir(parents=True, exist_ok=True)
        return tempfile.mkstemp(dir=self._folder, prefix=DRAFT_PREFIX)

    def _keep(self, uid: str, trainer: WebTrainer, draft: Path) -> TrainerSource:
        with draft.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if trainer.sha256 not in (None, digest):
            mismatch = f"it has the SHA-256 {digest}, the URI says {trainer.sha256}"
            return TrainerSource(
                "", trainer.name, f"the trainer {trainer.url.partition('?')[0]}: {mismatch}"
            )
        target = self._folder / digest / trainer.name
        target.parent.mkdir(exist_ok=True)
        draft.chmod(0o644)
        with draft.open("rb") as file:  # the note must not outlive the bytes that it speaks of
            os.fsync(file.fileno())
        draft.replace(target)
        note = self._note(uid, trainer)
        note.parent.mkdir(exist_ok=True)
        fresh = note.with_suffix(".new")
        fresh.write_text(digest)
        fresh.replace(note)
        return TrainerSource(digest, trainer.name)

    def _find_earlier(self, uid: str, trainer: WebTrainer) -> TrainerSource | None:
        """What an earlier attempt of the job ran, if it is still here."""
        try:
            digest = self._note(uid, trainer).read_text()
            os.utime(self._folder / digest / trainer.name)
            os.utime(self._note(uid, trainer))
        except FileNotFoundError:
            return None
        return TrainerSource(digest, trainer.name)

    def _note(self, uid: str, trainer: WebTrainer) -> Path:
        place = (
            f"{trainer.url}\n{trainer.ref}\n{trainer.subdirectory}" if trainer.git else trainer.url
        )
        name = hashlib.sha256(f"{uid}\n{place}".encode()).hexdigest()[:32]
        return self._folder / "fetched" / name


def _rewind(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
