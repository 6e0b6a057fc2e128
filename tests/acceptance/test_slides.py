"""What the slides show, line by line, and every example of the repository."""

from __future__ import annotations

import hashlib
import http.client
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cloud_ml.auth import legacy
from cloud_ml.client import CloudMlClient
from support.environments import EXAMPLES, pack
from support.server import RealServer

TENSORFLOW_S = 600
SNIPPET = """
from cloud_ml.client import CloudMlClient
from cloud_ml.models.train_job import TrainJob

train_job = TrainJob('face-recognition', 'trainer.task', 'fds://cloudml/trainer-1.0.tar.gz')
train_job.job_args = []
train_job.output_path = "fds://cloudml/face-model"
train_job.master_spec = {"replica_count": 1}

client = CloudMlClient(ACCESS_KEY, SECRET_KEY)
client.submit_train_job(train_job)
"""


@pytest.fixture(scope="module")
def trainer_uri(server: RealServer, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The package of the slides, where the slides have it."""
    file = pack(EXAMPLES / "plain", tmp_path_factory.mktemp("slides") / "trainer-1.0.tar.gz")
    server.client().storage.upload(file, "fds://cloudml/trainer-1.0.tar.gz")
    return "fds://cloudml/trainer-1.0.tar.gz"


def test_the_snippet_of_the_sdk(
    server: RealServer, client: CloudMlClient, trainer_uri: str
) -> None:
    keys = server.credentials
    program = SNIPPET.replace("ACCESS_KEY", repr(keys["access_key"])).replace(
        "SECRET_KEY", repr(keys["secret_key"])
    )
    subprocess.run(
        [sys.executable, "-c", program],
        env=server.environment(server.user_home, CLOUDML_ENDPOINT=server.endpoint),
        check=True,
        timeout=60,
    )
    assert client.get_train_job("face-recognition").wait(30).succeeded
    client.delete_train_job("face-recognition")


def test_the_lines_of_the_command(
    server: RealServer, client: CloudMlClient, trainer_uri: str
) -> None:
    submitted = server.cli("jobs", "submit", "face-detection", "trainer.task", trainer_uri).good()
    assert submitted.out == "face-detection is submitted (Queued)\n"
    client.get_train_job("face-detection").wait(30)
    assert "face-detection" in server.cli("jobs", "list").good().out
    cancelled = server.cli("jobs", "cancel", "face-detection")
    assert (cancelled.code, "has ended already" in cancelled.err) == (1, True)


def test_the_request(server: RealServer, client: CloudMlClient, trainer_uri: str) -> None:
    document = {
        "job_name": "face-request",
        "module_name": "trainer.task",
        "trainer_uri": trainer_uri,
        "job_args": [],
        "output_path": "fds://cloudml/face-model",
        "master_spec": {"replica_count": 1},
    }
    status, answer = _original(server, "POST", "/cloud_ml/v1/train", document)
    assert (status, answer["job_name"]) == (200, "face-request")
    assert client.get_train_job("face-request").wait(30).succeeded
    status, answer = _original(server, "GET", "/cloud_ml/v1/train/face-request")
    assert (status, answer["state"]) == (200, "completed")


@pytest.mark.tensorflow
@pytest.mark.timeout(TENSORFLOW_S)
def test_the_first_program_of_the_slides(server: RealServer) -> None:
    ran = _submitted(server, "hello")
    assert "Hello, TensorFlow!" in ran
    assert ran.splitlines()[-1] == "42"


@pytest.mark.tensorflow
@pytest.mark.timeout(TENSORFLOW_S)
def test_the_linear_model_of_the_slides(server: RealServer, client: CloudMlClient) -> None:
    ran = _submitted(
        server,
        "linear",
        "--model_path=fds://cloudml/linear/model",
        "--output_path",
        "fds://cloudml/linear/board",
    )
    assert "Use the optimizer: sgd" in ran
    assert "Epoch: 9, loss: 0.00" in ran
    stored = {one.key for one in client.storage.list_objects("fds://cloudml/linear/")}
    assert any(key.startswith("linear/model/00000001/") for key in stored), stored
    assert any(key.startswith("linear/board/events.out.tfevents") for key in stored), stored


@pytest.mark.runtimes
@pytest.mark.tensorflow
@pytest.mark.timeout(TENSORFLOW_S)
def test_digits_with_keras_3(server: RealServer, client: CloudMlClient) -> None:
    ran = _submitted(server, "digits", "--epochs", "2", "--model_path", "fds://cloudml/digits")
    accuracy = float(ran.rpartition("accuracy: ")[2].split()[0])
    assert accuracy > 0.8
    stored = {one.key for one in client.storage.list_objects("fds://cloudml/digits/")}
    assert {"digits/digits.keras", "digits/1/saved_model.pb"} <= stored


def _submitted(server: RealServer, name: str, *arguments: str) -> str:
    """Submit an example as the README does; returns its output."""
    words = [
        "jobs",
        "submit",
        "-W",
        name,
        "trainer.task",
        str(EXAMPLES / name),
        *(["--", *arguments] if arguments else []),
    ]
    return server.cli(*words, timeout_s=TENSORFLOW_S).good().out


def _original(server: RealServer, method: str, path: str, document: Any = None) -> tuple[int, Any]:
    """A request as the original client signs it."""
    keys, body = server.credentials, b"" if document is None else json.dumps(document).encode()
    server.client().admin.change_key(keys["access_key"], legacy_signatures=True)
    date, digest = str(int(time.time())), hashlib.md5(body, usedforsecurity=False).hexdigest()
    headers = {
        legacy.KEY: keys["access_key"],
        legacy.DATE: date,
        legacy.CONTENT: digest,
        legacy.AUTHORIZATION: f"{legacy.SCHEME} "
        f"{legacy.signature(path, date, digest, keys['secret_key'])}",
    }
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    told = json.loads(answer.read())
    connection.close()
    return answer.status, told


def test_every_example_is_run_somewhere() -> None:
    """Those of the frameworks by ``make test-runtimes``, all others here."""
    tests = Path(__file__).parents[1]
    files = (
        "acceptance/test_slides.py",
        "acceptance/test_jobs.py",
        "acceptance/test_sdk_examples.py",
        "runtimes/test_frameworks.py",
    )
    run = "".join((tests / name).read_text() for name in files)
    folders = [
        folder.name
        for folder in EXAMPLES.iterdir()
        if folder.is_dir() and folder.name != "__pycache__"
    ]
    assert [name for name in folders if f'"{name}"' not in run] == []
