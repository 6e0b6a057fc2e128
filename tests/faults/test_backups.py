"""The database is copied again and again while a server takes, runs, stops and removes jobs;
each copy is put back.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Self

import pytest

from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.errors import CloudMlError, Conflict, NotFound
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.state.sql.store import SqlStateStore
from support import invariants
from support.environments import pack
from support.server import RealServer, eventually, serving, trainer

BACKUPS = int(os.environ.get("FAULTS_BACKUPS", "6"))
_AT_WORK = 3
_URI = "fds://cloudml/witness-1.0.tar.gz"

pytestmark = [pytest.mark.timeout(600 + 60 * BACKUPS), pytest.mark.xdist_group("backups")]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RealServer]:
    folder = tmp_path / "server"
    folder.mkdir()
    with serving(
        folder, CLOUDML_ENGINE_STOP_GRACE_S=1, CLOUDML_CONTROLLER_MAX_RUNNING_JOBS=3
    ) as server:
        file = pack(trainer(tmp_path / "code", invariants.WITNESS), tmp_path / "witness-1.0.tar.gz")
        server.client().storage.upload(file, _URI)
        yield server


class Work:
    """Threads that submit, some of it to be run, and remove some of it again."""

    def __init__(self, server: RealServer) -> None:
        self.acknowledged: set[str] = set()
        self.removing: set[str] = set()
        self.wrong: list[str] = []
        self._server = server
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(number,)) for number in range(_AT_WORK)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        client, luck = self._server.client(), random.Random(number)
        count = 0
        while not self._stop.wait(luck.uniform(0, 0.05)):
            count += 1
            name = f"work-{number}-{count}"
            saved = count % 4 != 0
            job = TrainJob(
                name, "trainer.task", _URI, job_args=[f"fds://cloudml/{name}"], save_mode=saved
            )
            try:
                client.submit_train_job(job)
                self.acknowledged.add(name)
                if count % 5 == 0:
                    self.removing.add(name)
                    client.delete_train_job(name)
                elif count % 7 == 0:
                    client.cancel_train_job(name)
            except (Conflict, NotFound):
                pass
            except CloudMlError as error:
                self.wrong.append(repr(error))


def test_each_copy_has_what_was_acknowledged_before_it(
    server: RealServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copies: list[tuple[Path, set[str]]] = []
    with Work(server) as work:
        for number in range(BACKUPS):
            so_far = len(work.acknowledged)
            eventually(lambda so_far=so_far: len(work.acknowledged) > so_far, "somebody works")
            before = set(work.acknowledged)
            copy = tmp_path / f"copy-{number}.db"
            maintain(server, server.data, "backup", str(copy))
            copies.append((copy, before - work.removing))
    assert work.wrong == []
    for copy, before in copies:
        data = tmp_path / f"data-of-{copy.stem}"
        maintain(server, data, "restore", str(copy))
        maintain(server, data, "check")
        assert before - jobs_of(data) == set(), copy
        assert [path.name for path in data.iterdir() if path.name.startswith(".")] == []
    assert copies[0][1] < copies[-1][1]

    last, before = copies[-1]
    server.terminate()
    server.kill_spawner(may_have_left=True)
    server.data.rename(tmp_path / "lost")
    (tmp_path / f"data-of-{last.stem}").rename(server.data)
    server.start()  # with the database alone: objects and logs have copies of their own
    client = server.client()
    assert invariants.lost(client, before) == []
    saved = next(job.name for job in client.list_train_jobs(state="Saved"))
    server.client().storage.upload(tmp_path / "witness-1.0.tar.gz", _URI)
    client.start_train_job(saved)
    assert client.get_train_job(saved).wait(60).phase == "Succeeded"
    with capsys.disabled():
        print(
            f"\n{BACKUPS} copies while {len(work.acknowledged)} jobs were submitted, all of "
            "them whole",
            flush=True,
        )


def maintain(server: RealServer, data: Path, *words: str) -> None:
    server.cli("server", "--data-dir", str(data), *words, home=server.home).good()


def jobs_of(data: Path) -> set[str]:
    """Every job in the database of a folder, read as a server would."""
    with closing(SqlStateStore.open(f"sqlite:///{data}/state.db", create=False)) as store:
        found: set[str] = set()
        after: int | None = None
        while True:
            page = store.list(TRAIN_JOB, after=after, limit=200)
            for summary in page.items:
                record = store.get(TRAIN_JOB, summary.key.uid)
                assert record is not None
                assert record.spec.submitted.job_name == record.key.name
                found.add(record.key.name)
            if (after := page.next) is None:
                return found
