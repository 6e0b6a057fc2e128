"""A server with failpoints, somebody who starts it again when it has died, and a day's work for
it.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from cloud_ml import failpoints
from cloud_ml.errors import (
    AlreadyExists,
    CloudMlError,
    Conflict,
    NotFound,
    TransportError,
    TryAgain,
)
from cloud_ml.models.jobs.job import Job
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.sdk.jobs.handles import JobHandle
from cloud_ml.sdk.storage.transfers import Transfers
from support import invariants
from support.environments import pack
from support.server import RealServer, eventually, serving, trainer

R = TypeVar("R")
SLICE = int(os.environ.get("FAULTS_SLICE", "1"))
"""Every how manieth failpoint is tried, where time is short."""
_PATIENCE_S = 60.0
_MIB = 1 << 20


@contextlib.contextmanager
def fragile(folder: Path, **settings: object) -> Iterator[RealServer]:
    """A server whose failpoints may be ordered with ``order``."""
    orders = folder.with_name(f"{folder.name}-orders")
    shutil.rmtree(
        orders, ignore_errors=True
    )  # of a server before, whose folder is gone and its name free again
    orders.mkdir()
    variables = {
        failpoints.FOLDER: orders,
        failpoints.ALLOWED: failpoints.WORD,
        "CLOUDML_ENGINE_STOP_GRACE_S": 1,
        "CLOUDML_CONTROLLER_MAX_RUNNING_JOBS": 6,
    }
    with serving(folder, **variables, **settings) as server:
        yield server


def orders_of(server: RealServer) -> Path:
    """The folder of orders of a fragile server."""
    return server.folder.with_name(f"{server.folder.name}-orders")


def order(server: RealServer, point: str, word: str = "kill") -> None:
    """Have whoever passes the point next die there (``kill``), or stand still (``stop``)."""
    draft = orders_of(server) / "draft"
    draft.write_text(word)
    draft.rename(orders_of(server) / point)


def reached(server: RealServer, point: str) -> int | None:
    """The process that carried the order out, once somebody has; forgets it."""
    file = orders_of(server) / f"{point}.reached"
    with contextlib.suppress(FileNotFoundError, ValueError):
        pid = int(file.read_text())
        file.unlink()
        return pid
    return None


class Reviver(threading.Thread):
    """Starts the server again whenever it has died, which may take several tries. Use as a context.

    Args:
        server: The server.
        before: Called after the first death, before the start.
    """

    def __init__(self, server: RealServer, before: Callable[[], None] = lambda: None) -> None:
        super().__init__(daemon=True)
        self.revived = 0
        self._before = before
        self._server = server
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.01):
            process = self._server.process
            if process is not None and process.poll() is not None:
                self._server.kill()
                self._before()
                self._before = lambda: None
                start_until_up(self._server)
                self.revived += 1

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()


def start_until_up(server: RealServer, tries: int = 3) -> int:
    """Start the server, which may die meanwhile; returns how often it has."""
    for died in range(tries):
        try:
            server.start()
        except AssertionError:
            if died == tries - 1:
                raise
        else:
            return died
    raise AssertionError


def insist(call: Callable[[], R]) -> R:
    """The result of ``call``, asked for again while the server is away."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return call()
        except (TransportError, TryAgain):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


class Day:
    """A day's work: objects come, go and are sent in segments and in parts; jobs run to their end,
    fail, are stopped and removed. One has two tasks, of which one starts again alone.

    Args:
        server: May die and be started again meanwhile.
        folder: An empty folder for what is sent.
        name: Of everything that is made.
    """

    def __init__(self, server: RealServer, folder: Path, name: str) -> None:
        self._server = server
        self._client = server.client()
        self._client.storage._transfers = Transfers(in_parts_from=_MIB, part_size=_MIB)
        self._folder = folder
        self._name = name
        self.acknowledged: list[str] = []
        self._watcher = invariants.Watcher(server.client(), self.acknowledged)
        self.wrong: list[str] = []
        self._kept: dict[str, bytes] = {}

    def work(self) -> None:
        """Do all of it, and note in ``wrong`` what is not as it was acknowledged."""
        self._watcher.start()
        storage = self._client.storage
        file = pack(
            trainer(self._folder / "code", invariants.WITNESS_OF_FILES),
            self._folder / "witness-1.0.tar.gz",
        )
        uri = f"fds://cloudml/{self._name}/witness-1.0.tar.gz"
        insist(lambda: storage.upload(file, uri))
        insist(self._remove_bucket)
        team_file = pack(
            trainer(self._folder / "team", invariants.TEAM), self._folder / "team-1.0.tar.gz"
        )
        team_uri = f"fds://cloudml/{self._name}/team-1.0.tar.gz"
        insist(lambda: storage.upload(team_file, team_uri))
        plain = self._submit("plain", uri)
        # Its second task fails once in each attempt, and the budget is for all of them.
        team = self._submit("team", team_uri, worker_count=2, recipe="cluster", task_retries=10)
        retried = self._submit("retried", uri, "fail")
        endless = self._submit("endless", uri, "forever")
        self._store("in-segments", 2 * _MIB + 1)
        self._pipe("in-parts", 2 * _MIB + 1)
        self._store("small", 10)
        self._store("removed", 10)
        insist(lambda: self._remove("removed"))
        self._ends(plain, "Succeeded")
        self._ends(retried, "Succeeded")
        self._team_ends(team)
        runs = self._place("endless") / "runs"
        eventually(runs.exists, "the endless job runs")
        insist(lambda: self._stop(endless))
        self._ends(endless, "Stopped")
        self.acknowledged.remove(self._job("retried"))
        with contextlib.suppress(NotFound):  # the answer to an earlier try was lost
            insist(retried.delete)
        insist(retried.wait_until_gone)
        if (self._server.bucket(".outputs") / f"{retried.name}-{retried.uid}").exists():
            self.wrong.append(f"{retried.name} was deleted and its outputs are there")
        self._check()

    def _submit(self, kind: str, uri: str, *words: str, **fields: Any) -> JobHandle:
        name = self._job(kind)
        place = f"fds://cloudml/{self._name}/{kind}"
        fields |= {"max_retries": 3, "metric_patterns": invariants.PATTERNS}
        job = TrainJob(name, "trainer.task", uri, job_args=[place, *words], **fields)
        try:
            handle = insist(lambda: self._client.submit_train_job(job))
        except AlreadyExists as error:  # the answer to an earlier try was lost
            if not error.same_spec:
                raise
            handle = insist(lambda: self._client.get_train_job(name))
        self.acknowledged.append(name)
        return handle

    def _store(self, key: str, size: int) -> None:
        content = os.urandom(size)
        file = self._folder / key
        file.write_bytes(content)
        insist(lambda: self._client.storage.upload(file, self._object(key)))
        self._kept[key] = content

    def _pipe(self, key: str, size: int) -> None:
        content = os.urandom(size)
        insist(lambda: self._client.storage.upload_stream(io.BytesIO(content), self._object(key)))
        self._kept[key] = content

    def _remove(self, key: str) -> None:
        with contextlib.suppress(NotFound):  # the answer to an earlier try was lost
            self._client.storage.delete(self._object(key))
        self._kept.pop(key, None)

    def _remove_bucket(self) -> None:
        """Make a bucket with an object and remove both; repeated it does the same."""
        storage, bucket = self._client.storage, f"removed-{self._name}"
        storage.create_bucket(bucket)
        storage.upload(b"content", f"fds://{bucket}/key")
        try:
            storage.delete_bucket(bucket, force=True)
        except (
            Conflict
        ):  # the server died after the content had gone, and the client says that it does not know
            if list(storage.list_objects(f"fds://{bucket}/")):
                self.wrong.append(
                    f"the bucket {bucket} was removed with force and some of its content is there"
                )
            storage.delete_bucket(bucket, force=True)
        if self._server.bucket().with_name(bucket).exists():
            self.wrong.append(f"the bucket {bucket} was removed and its folder is there")

    def _stop(self, job: JobHandle) -> None:
        with contextlib.suppress(Conflict):  # it has ended
            job.cancel()

    def _ends(self, handle: JobHandle, phase: str) -> None:
        job = insist(lambda: handle.wait(_PATIENCE_S))
        kind = handle.name.partition("-")[0]
        if job.phase != phase:
            self.wrong.append(
                f"{handle.name} ended as {job.phase} in attempt {job.attempt}: {job.message}"
            )
        log = insist(lambda: b"".join(handle.logs()))
        place = self._place(kind)
        self.wrong += invariants.ran_twice(handle.name, place)
        self.wrong += invariants.log_incomplete(
            handle.name, log, self._ran(place), self._whole(job)
        )
        self.wrong += insist(lambda: invariants.outputs_wrong(self._client, job))
        if job.phase == "Succeeded":
            self.wrong += insist(lambda: invariants.points_wrong(handle, job.attempt))

    def _team_ends(self, handle: JobHandle) -> None:
        job = insist(lambda: handle.wait(_PATIENCE_S))
        if job.phase != "Succeeded":
            self.wrong.append(f"{handle.name} ended as {job.phase}: {job.message}")
        if [task.restarts for task in job.tasks] != [0, 1]:
            self.wrong.append(f"{handle.name}: the restarts of its tasks are {job.tasks}")
        self.wrong += invariants.started_twice(handle.name, self._place("team"))

    def _ran(self, place: Path) -> list[int]:
        runs = place / "runs"
        return [int(attempt) for attempt in runs.read_text().split()] if runs.exists() else []

    def _whole(self, job: Job) -> list[int]:
        return [job.attempt] if job.phase == "Succeeded" else []

    def _check(self) -> None:
        """The server may have died after the last answer, so each look is repeated while it is
        away.
        """
        self.wrong += insist(lambda: invariants.lost(self._client, self.acknowledged))
        for key, content in self._kept.items():
            try:
                if insist(partial(self._read, key)) != content:
                    self.wrong.append(f"the object {key} came back different")
            except CloudMlError as error:
                self.wrong.append(f"the object {key} was acknowledged and is lost: {error}")
        with contextlib.suppress(NotFound):
            insist(lambda: self._client.storage.head(self._object("removed")))
            self.wrong.append("an object that was removed is back")
        self.wrong += self._watcher.wrong()
        self.wrong += invariants.left_behind(self._server)

    def _read(self, key: str) -> bytes:
        with self._client.storage.open(self._object(key)) as body:
            return body.read()

    def _job(self, kind: str) -> str:
        return f"{kind}-{self._name}"

    def _object(self, key: str) -> str:
        return f"fds://cloudml/{self._name}/{key}"

    def _place(self, kind: str) -> Path:
        return self._server.bucket(self._name, kind)
