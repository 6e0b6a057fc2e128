"""What user journeys share: the server, a client, and code that does as it is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.models.jobs.job import Job
from cloud_ml.models.jobs.train_job import TrainJob
from support.server import RealServer, trainer


@pytest.fixture
def client(server: RealServer) -> CloudMlClient:
    return server.client()


@pytest.fixture
def code(tmp_path: Path) -> Callable[..., str]:
    """A folder with ``trainer.task`` of the given source (and files such as ``setup_py``), as a
    path.
    """
    return lambda source, **files: str(
        trainer(tmp_path / f"code-{len(list(tmp_path.iterdir()))}", source, **files)
    )


@pytest.fixture
def run(client: CloudMlClient, code: Callable[..., str]) -> Callable[..., tuple[Job, str]]:
    """Run a source to its end as a job of the given name and fields; returns the job and its
    log.
    """

    def run(name: str, source: str, **fields: Any) -> tuple[Job, str]:
        handle = client.submit_train_job(TrainJob(name, "trainer.task", code(source), **fields))
        return handle.wait(60), b"".join(handle.logs()).decode()

    return run
