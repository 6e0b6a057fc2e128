"""What the slides show, line by line, and every example of the repository."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cloud_ml.client import CloudMlClient
from support.environments import EXAMPLES, pack
from support.event_files import SLIDE, TUNED
from support.original_requests import original_request
from support.server import RealServer, eventually, trainer

TENSORFLOW_S = 600
SNIPPET = """
from cloud_ml.client import CloudMlClient
from cloud_ml.models.jobs.train_job import TrainJob

train_job = TrainJob('face-recognition', 'trainer.task', 'fds://cloudml/trainer-1.0.tar.gz')
train_job.job_args = []
train_job.output_path = "fds://cloudml/face-model"
train_job.master_spec = {"replica_count": 1}

client = CloudMlClient(ACCESS_KEY, SECRET_KEY)
client.submit_train_job(train_job)
"""

CLUSTER = """
import time
import tensorflow as tf

for role in ("ps", "worker", "master"):
    tf.app.flags.DEFINE_string(role + "_hosts", "", "Such as 127.0.0.1:3001,127.0.0.1:3002")
tf.app.flags.DEFINE_string("job_name", "", "ps, worker or master")
tf.app.flags.DEFINE_integer("task_index", 0, "From 0")
FLAGS = tf.app.flags.FLAGS

clusterSpec = tf.train.ClusterSpec({
  "worker": FLAGS.worker_hosts.split(","),
  "ps": FLAGS.ps_hosts.split(","),
  "master": FLAGS.master_hosts.split(",")})
server = tf.train.Server(clusterSpec, job_name = FLAGS.job_name, task_index = FLAGS.task_index)
if FLAGS.job_name == "ps":
    # wait for incoming connections ...
    server.join()

with tf.device("/job:ps/task:1"):
    met = tf.Variable(0, name="met")
add = met.assign_add(1)
missing = tf.report_uninitialized_variables()
with tf.Session(server.target) as sess:
    if FLAGS.job_name == "master":
        sess.run(tf.global_variables_initializer())
    while len(sess.run(missing)):
        time.sleep(0.1)
    sess.run(add)
    while sess.run(met) < 3:
        time.sleep(0.1)
    print(FLAGS.job_name, FLAGS.task_index, "met", sess.run(met))
"""
"""A worker and a parameter server of the slides, with the command line of their TF_CONFIG page."""


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
    status, answer = original_request(server, "POST", "/cloud_ml/v1/train", document)
    assert (status, answer["job_name"]) == (200, "face-request")
    assert client.get_train_job("face-request").wait(30).succeeded
    status, answer = original_request(server, "GET", "/cloud_ml/v1/train/face-request")
    assert (status, answer["state"]) == (200, "completed")


def test_the_tuning(server: RealServer, client: CloudMlClient, tmp_path: Path) -> None:
    code = pack(trainer(tmp_path / "tuned", TUNED), tmp_path / "trainer-37.tar.gz")
    client.storage.upload(code, "fds://cloudml/trainer-37.tar.gz")
    request = {**SLIDE, "trainer_uri": "fds://cloudml/trainer-37.tar.gz"}
    status, answer = original_request(server, "POST", "/cloud_ml/v1/train", request)
    assert (status, answer["job_name"], answer["state"]) == (200, "linear37", "running")

    def ended() -> bool:
        return bool(
            original_request(server, "GET", "/cloud_ml/v1/train/linear37")[1]["state"]
            == "completed"
        )

    eventually(ended, "the tuning has ended")
    path = "/cloud_ml/v1/train/linear37-hp-3/hyperparameters"
    status, report = original_request(server, "GET", path)
    assert (status, report["goal"], report["trialCount"]) == (200, "MINIMIZE", 4)
    best = report["best_trials"]
    assert best["params"] == (
        "--output_path=fds://cloudml/linear_output37/2 --learning_rate=0.1 --optimizer=sgd"
    )
    assert (round(best["metric"], 3), best["step"], best["state"]) == (0.1, 20000, "completed")
    assert [trial["step"] for trial in report["trials"]] == [20000] * 4
    output = server.cli("jobs", "hp", "linear37-hp-3").good().out
    assert output.startswith("Goal: MINIMIZE\nTrial count: 4\nBest trial:\n")
    assert f"Params: {best['params']}" in output
    described = original_request(server, "GET", "/cloud_ml/v1/train/linear37-hp-3")[1]
    assert described["hyperparameters_name"] == "linear37"
    assert original_request(server, "DELETE", "/cloud_ml/v1/train/linear37")[0] == 200


@pytest.mark.tensorflow
@pytest.mark.timeout(TENSORFLOW_S)
@pytest.mark.slow
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
def test_parameter_servers_and_workers_of_the_slides(server: RealServer, tmp_path: Path) -> None:
    script = tmp_path / "task.py"
    script.write_text(CLUSTER)
    ran = server.cli(
        "jobs", "submit", "-W", "met", "task", str(script), "-p", "2", "-w", "2",
        "-F", "tensorflow", "-V", "1", "--cluster-arguments", timeout_s=TENSORFLOW_S,
    ).good().out  # fmt: skip
    assert "[master-0] master 0 met 3" in ran


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
