"""After a day of work no secret lies where it does not belong: logs, metrics, audit, command
lines, files.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import re
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest

from cloud_ml.aio import AsyncCloudMlClient
from cloud_ml.client import CloudMlClient
from cloud_ml.errors import CloudMlError
from cloud_ml.models.jobs.train_job import TrainJob
from support.server import RealServer

pytestmark = pytest.mark.timeout(300)

WHERE_THEY_BELONG = ("state.db", "credentials.json")
TOKEN = "Zm9yLXRoZS1zZXJ2ZXItb25seQ"
"""In the query of a trainer's URL: whoever may see the job may see it, and nobody else."""


VALUE = "hunter2-for-jobs-only-9d1c"
NEWER = "hunter3-for-jobs-only-77e0"
LENGTHS = """
import os, pathlib
print("lengths", len(pathlib.Path("/run/secrets/db-password").read_text()), len(os.environ["DB_PASSWORD"]), flush=True)
pathlib.Path("done.txt").write_text("done")
"""


def files(server: RealServer) -> list[Path]:
    found = [path for path in server.data.rglob("*") if path.is_file() and not path.is_symlink()]
    return [path for path in found if not path.name.startswith(WHERE_THEY_BELONG)]


def everything(server: RealServer) -> dict[str, str]:
    """What the server says and keeps: its log, the audit log, command lines, and files that are
    not the database.
    """
    texts = {
        "the log": server.log(),
        "the audit log": repr(list(server.client().admin.audit(limit=1000))),
    }
    assert server.process is not None
    for process in [
        psutil.Process(server.process.pid),
        *psutil.Process(server.process.pid).children(recursive=True),
    ]:
        texts[f"the command line of {process.pid}"] = " ".join(process.cmdline())
    for path in files(server):
        texts[str(path)] = path.read_bytes().decode("latin-1")
    assert len(texts) > 5
    return texts


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
            TrainJob(
                "with-token", "trainer.task", f"http://127.0.0.1:9/trainer-1.0.tar.gz?token={TOKEN}"
            )
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

    texts = everything(server) | {"the metrics": metrics}
    assert [
        where for where, text in texts.items() if any(secret in text for secret in secrets)
    ] == []
    for path in (*server.data.glob("credentials.json"), *server.data.glob("state.db*")):
        assert path.stat().st_mode & 0o077 == 0, path


async def awaited(server: RealServer) -> list[str]:
    """The other face of the SDK: store a secret, replace and describe it, and list the names."""
    keys = server.credentials
    async with AsyncCloudMlClient(
        keys["access_key"], keys["secret_key"], server.endpoint
    ) as client:
        await client.secrets.create("second", b"\0")
        await client.secrets.create("second", b"\0\1", replace=True)
        assert (await client.secrets.describe("second")).size == 2
        names = [one.name for one in await client.secrets.list()]
        await client.secrets.delete("second")
        return names


def test_jobs_get_secrets_and_nobody_is_shown_them(server: RealServer, tmp_path: Path) -> None:
    script = tmp_path / "lengths.py"
    script.write_text(LENGTHS)
    client = server.client()
    made = client.secrets.create("db-password", VALUE)
    assert (made.state, made.size) == ("Ready", len(VALUE))
    train_job = TrainJob(
        "lengths", "lengths", str(script), secrets=["db-password", "db-password=DB_PASSWORD"]
    )
    if "bubblewrap" not in client.server_info().isolation.get("sandbox", ""):
        pytest.skip("files of secrets need the sandbox")
    job = client.submit_train_job(train_job)
    assert job.wait(90).succeeded, job.job.message
    client.secrets.create("db-password", NEWER + "\n", replace=True)
    replaced = client.submit_train_job(dataclasses.replace(train_job, job_name="lengths-2"))
    assert replaced.wait(90).succeeded, replaced.job.message
    logs = [b"".join(one.logs()).decode() for one in (job, replaced)]
    assert [
        f"lengths {len(VALUE)} {len(VALUE)}" in logs[0],
        f"lengths {len(NEWER) + 1} {len(NEWER)}" in logs[1],
    ] == [
        True,
        True,
    ]
    assert asyncio.run(awaited(server)) == ["db-password", "second"]
    client.secrets.delete("db-password")
    with pytest.raises(CloudMlError, match="there is no secret db-password"):
        client.submit_train_job(dataclasses.replace(train_job, job_name="lengths-3"))
    shown = {
        "describe": repr(job.refresh()),
        "events": repr(job.events()),
        "outputs": repr(list(job.outputs())),
        "secrets": repr(client.secrets.list()),
        "logs": "".join(logs),
        "the database": "".join(
            path.read_bytes().decode("latin-1") for path in server.data.glob("state.db*")
        ),
    }
    assert "done.txt" in shown["outputs"]
    assert "db-password" not in shown["outputs"]
    forms = [
        form
        for one in (VALUE, NEWER)
        for form in (one, base64.b64encode(one.encode()).decode()[:-4])
    ]
    assert [
        where
        for where, text in (everything(server) | shown).items()
        if any(form in text for form in forms)
    ] == []
    assert (server.data / "sealing.key").stat().st_mode & 0o077 == 0
    assert server.process is not None
    limits = Path(f"/proc/{server.process.pid}/limits").read_text()
    assert re.search(r"^Max core file size +0 +0 ", limits, re.MULTILINE), (
        "a core of the server would have the key"
    )
