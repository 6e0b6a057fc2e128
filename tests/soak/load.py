"""People at work: they submit, follow, list, store and remove, and check what they get."""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable

from cloud_ml.client import CloudMlClient
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.errors import (
    AlreadyExists,
    CloudMlError,
    NotFound,
    TransportError,
    TryAgain,
    WaitTimedOut,
)
from cloud_ml.models.jobs.train_job import TrainJob
from support import invariants
from support.server import RealServer

_KINDS = ("plain", "plain", "plain", "retried", "cancelled")


class Load:
    """Threads that use a server until ``stop``; ``wrong`` is what must be empty at the end.

    Args:
        server: May be killed and started again meanwhile: callers try again.
        trainer_uri: Of the package made from ``invariants.WITNESS``.
        rate: Jobs submitted per second.
        most_open: Nobody submits while so many have not ended.
    """

    def __init__(
        self, server: RealServer, trainer_uri: str, *, rate: float, most_open: int = 40
    ) -> None:
        self._server = server
        self._uri = trainer_uri
        self._rate = rate
        self._most_open = most_open
        self._stop = threading.Event()
        self._finish = threading.Event()
        self._open: list[tuple[str, str]] = []
        self._sent: tuple[TrainJob, str] | None = (
            None  # without an answer: one that runs for ever takes a place
        )
        self._unchecked: set[str] = set()
        self._deleted: set[str] = set()
        self._orders: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
        self._lock = threading.Lock()
        self.done: Counter[str] = Counter()
        self.wrong: list[str] = []
        parts = [
            self._submit,
            *[self._collect] * 6,
            self._follow,
            self._look,
            self._list,
            self._list,
            self._store,
        ]
        self._threads = [
            threading.Thread(target=self._run, args=(part,), name=part.__name__) for part in parts
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self, limit_s: float = 120.0) -> None:
        """Submit no more, collect what is open, and end."""
        self._stop.set()
        deadline = time.monotonic() + limit_s
        while self._unchecked and time.monotonic() < deadline:
            self._finish.wait(0.1)
        self._finish.set()
        never = sorted(self._unchecked)
        self.wrong += [f"{name} did not end" for name in never]
        client = self._server.client()
        for name in never:  # whoever follows one of them waits for its end
            with contextlib.suppress(CloudMlError):
                client.cancel_train_job(name)
        for thread in self._threads:
            thread.join()
        for job in list(
            client.list_train_jobs()
        ):  # arrived, though nobody was told so, and run for ever
            with contextlib.suppress(CloudMlError):
                client.delete_train_job(job.uid)

    # ---- what they do

    def _submit(self, client: CloudMlClient) -> None:
        if len(self._open) >= self._most_open:
            self._stop.wait(0.1)
            return
        job, kind = self._sent = self._sent or self._made_up()
        with contextlib.suppress(AlreadyExists):  # it had arrived, and only the answer was lost
            client.submit_train_job(job)
        self._sent, name = None, job.job_name
        with self._lock:
            self._open.append((name, kind))
            self._unchecked.add(name)
        self.done["submitted"] += 1
        self._stop.wait(random.expovariate(self._rate))

    def _made_up(self) -> tuple[TrainJob, str]:
        kind = random.choice(_KINDS)
        name = f"soak-{os.urandom(6).hex()}"
        words = {"retried": ["fail"], "cancelled": ["forever"]}.get(kind, [])
        place = f"fds://cloudml/run-{name}"
        retries = int(kind == "retried")
        return TrainJob(
            name, "trainer.task", self._uri, job_args=[place, *words], max_retries=retries
        ), kind

    def _collect(self, client: CloudMlClient) -> None:
        with self._lock:
            name, kind = self._open.pop(0) if self._open else ("", "")
        if not name:
            self._finish.wait(0.05)
            return
        try:
            self._check(client, name, kind)
        except NotFound:
            if name not in self._deleted:
                self.wrong.append(f"{name} was acknowledged and is lost")
            self._unchecked.discard(name)
        except CloudMlError:
            with self._lock:
                self._open.append((name, kind))
            raise

    def _check(self, client: CloudMlClient, name: str, kind: str) -> None:
        handle = client.get_train_job(name)
        if name in self._deleted:  # the answer to the wish to delete was lost
            handle.delete()
            handle.wait_until_gone()
            self._unchecked.discard(name)
            return
        if kind == "cancelled":
            handle.cancel()
        job = handle.wait(60)
        expected = {"plain": ("Succeeded", 1), "retried": ("Succeeded", 2)}.get(kind)
        if expected and (job.phase, job.attempt) != expected:
            self.wrong.append(
                f"{name} ({kind}) ended as {job.phase} in attempt {job.attempt}: {job.message}"
            )
        place = self._server.bucket(f"run-{name}")
        self.wrong += invariants.ran_twice(name, place)
        attempts = range(1, job.attempt + 1)
        log = b"".join(handle.logs())
        self.wrong += invariants.log_incomplete(name, log, attempts, attempts if expected else ())
        if self._server.processes_of(job.uid, job.attempt):
            self.wrong.append(f"{name} has ended and left processes behind")
        self._deleted.add(name)
        handle.delete()
        for file in ("lock", "runs"):
            with contextlib.suppress(NotFound):
                client.storage.delete(f"fds://cloudml/run-{name}/{file}")
        self._unchecked.discard(name)
        self.done["collected"] += 1

    def _follow(self, client: CloudMlClient) -> None:
        with self._lock:
            name = random.choice(self._open)[0] if self._open else ""
        if not name:
            self._finish.wait(0.05)
            return
        with contextlib.suppress(NotFound):
            for _ in client.get_train_job(name).logs(follow=True):
                if self._finish.is_set():
                    break
            self.done["followed"] += 1

    def _look(self, client: CloudMlClient) -> None:
        """At states, which only move forward. One thread does, so that what it is told is in
        order.
        """
        with self._lock:
            names = [name for name, _ in self._open]
        for name in names:
            with contextlib.suppress(NotFound):
                job = client.describe_train_job(name)
                order = WorkloadStatus(Phase(job.phase), attempt=job.attempt).order
                if order < self._orders[name]:
                    self.wrong.append(f"{name} went backwards: {self._orders[name]}, then {order}")
                self._orders[name] = order
        self._finish.wait(0.1)

    def _list(self, client: CloudMlClient) -> None:
        for line, _ in zip(client.list_train_jobs(limit=50), range(50), strict=False):
            if random.random() < 0.1:
                with contextlib.suppress(NotFound):
                    client.describe_train_job(line.name)
        self.done["listed"] += 1
        self._finish.wait(0.1)

    def _store(self, client: CloudMlClient) -> None:
        content = os.urandom(random.randrange(1, 1 << 18))
        file = self._server.folder / "soak-object"
        file.write_bytes(content)
        uri = f"fds://cloudml/soak/{os.urandom(4).hex()}"
        client.storage.upload(file, uri)
        back = file.with_suffix(".back")
        client.storage.download(uri, back)
        if back.read_bytes() != content:
            self.wrong.append(f"{uri} came back different")
        client.storage.delete(uri)
        self.done["stored"] += 1
        self._finish.wait(0.2)

    def _run(self, part: Callable[[CloudMlClient], None]) -> None:
        """Repeat ``part``; a server that is away is waited for, and only then."""
        ends = self._stop if part == self._submit else self._finish
        client = self._server.client()
        while not ends.is_set():
            try:
                part(client)
            except (
                TransportError,
                TryAgain,
                WaitTimedOut,
            ) as error:  # what never ends, ``stop`` finds
                self.done[f"error {error.code}"] += 1
                ends.wait(0.2)
            except Exception as error:
                self.wrong.append(f"{part.__name__}: {type(error).__name__}: {error}")
                ends.wait(1)
