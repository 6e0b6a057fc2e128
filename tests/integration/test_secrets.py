"""After a day of work no secret lies where it does not belong: logs, metrics, audit, command lines, files."""

from __future__ import annotations

import contextlib
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.errors import CloudMlError
from cloud_ml.models.train_job import TrainJob
from support.server import RealServer

pytestmark = pytest.mark.timeout(120)

WHERE_THEY_BELONG = ("state.db", "credentials.json")
TOKEN = "Zm9yLXRoZS1zZXJ2ZXItb25seQ"
"""In the query of a trainer's URL: whoever may see the job may see it, and nobody else."""


def files(server: RealServer) -> list[Path]:
    found = [path for path in server.data.rglob("*") if path.is_file() and not path.is_symlink()]
    return [path for path in found if not path.name.startswith(WHERE_THEY_BELONG)]


def test_no_secret_lies_about(server: RealServer, tmp_path: Path) -> None:
    client = server.client()
    client.admin.create_user("sam")
    made = client.admin.create_key("sam")
    after = client.admin.rotate_key(made.key.access_key)
    secrets = {server.credentials["secret_key"], made.secret_key, after.secret_key, TOKEN}
    with CloudMlClient(after.key.access_key, after.secret_key, server.endpoint) as sam:
        source = tmp_path / "a.txt"
        source.write_text("hello")
        sam.storage.upload(source, "fds://cloudml/secrets/a.txt")
        link = sam.storage.presign("fds://cloudml/secrets/a.txt")
        secrets.add(link.rpartition("=")[2])
        with urlopen(link if "://" in link else server.endpoint + link) as answer:
            assert answer.read() == b"hello"
        with contextlib.suppress(CloudMlError):
            sam.admin.create_org("mine")
        job = sam.submit_train_job(
            TrainJob("with-token", "trainer.task", f"http://127.0.0.1:9/trainer-1.0.tar.gz?token={TOKEN}")
        )
        assert job.wait(60).reason == "TrainerNotFound"
    with CloudMlClient(after.key.access_key, after.secret_key + "x", server.endpoint) as wrong:
        with pytest.raises(CloudMlError):
            wrong.whoami()
        secrets.add(after.secret_key + "x")
    client.admin.revoke_key(after.key.access_key)

    with urlopen(server.endpoint + "/metrics") as answer:
        metrics = answer.read().decode()
    names = {"sam", "cloudml/secrets", "with-token", made.key.access_key}
    assert "cloudml_" in metrics
    assert not [name for name in names if name in metrics]

    told = {
        "the log": server.log(),
        "the audit log": repr(list(client.admin.audit(limit=1000))),
        "the metrics": metrics,
    }
    assert server.process is not None
    for process in [psutil.Process(server.process.pid), *psutil.Process(server.process.pid).children(recursive=True)]:
        told[f"the command line of {process.pid}"] = " ".join(process.cmdline())
    for path in files(server):
        told[str(path)] = path.read_bytes().decode("latin-1")
    assert len(told) > 5
    assert [where for where, text in told.items() if any(secret in text for secret in secrets)] == []
    for path in (*server.data.glob("credentials.json"), *server.data.glob("state.db*")):
        assert path.stat().st_mode & 0o077 == 0, path
