"""Bad input on the command line and on the wire: what is wrong is named, and the exit code is
not zero.
"""

from __future__ import annotations

import http.client
import json
from datetime import UTC, datetime, timedelta

import pytest

from cloud_ml.auth import signature
from support.environments import EXAMPLES
from support.server import RealServer

PLAIN = str(EXAMPLES / "plain")
SUBMIT = ["jobs", "submit"]
GOOD = ["bad-input", "trainer.task", PLAIN]


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        ([*SUBMIT, "Bad_Name", "trainer.task", PLAIN], 1, ["job_name", "Bad_Name", "lower-case"]),
        ([*SUBMIT, "x" * 64, "trainer.task", PLAIN], 1, ["job_name", "63"]),
        ([*SUBMIT, "bad", "trainer-task", PLAIN], 1, ["module_name", "trainer-task"]),
        (
            [*SUBMIT, "bad", "trainer.task", "/no/such/folder"],
            1,
            ["trainer_uri", "/no/such/folder"],
        ),
        ([*SUBMIT, "bad", "trainer.task", "fds://cloudml"], 1, ["trainer_uri", "path"]),
        (
            [*SUBMIT, "bad", "trainer.task", "fds://cloudml/../../etc/passwd"],
            1,
            ["trainer_uri", ".."],
        ),
        (
            [*SUBMIT, "bad", "trainer.task", "file:///etc/passwd"],
            1,
            ["trainer_uri", "file:///etc/passwd", "fds://"],
        ),
        ([*SUBMIT, *GOOD, "-M", "100MB"], 1, ["memory_limit", "100MB", "100M"]),
        ([*SUBMIT, *GOOD, "-M", "9999G"], 1, ["memory_limit", "9999G", "at most"]),
        ([*SUBMIT, *GOOD, "-c", "0"], 1, ["cpu_limit", "0.5"]),
        ([*SUBMIT, *GOOD, "-c", "4000"], 1, ["cpu_limit", "4000", "cores"]),
        ([*SUBMIT, *GOOD, "-c", "two"], 1, ["cpu_limit", "two"]),
        ([*SUBMIT, *GOOD, "--time-limit", "soon"], 1, ["wall_time_limit", "soon", "2h"]),
        ([*SUBMIT, *GOOD, "--retries", "many"], 2, ["retries", "many"]),
        (
            [*SUBMIT, *GOOD, "--memory-factor", "1"],
            1,
            ["restart.memory_factor is '1'", "a number above 1"],
        ),
        (
            [*SUBMIT, *GOOD, "--memory-factor", "2"],
            1,
            ["restart.memory_factor is 2", "has no memory limit", "memory_limit"],
        ),
        (
            [*SUBMIT, *GOOD, "-M", "600M", "--memory-factor", "2", "--memory-most", "600M"],
            1,
            ["restart.memory_most is 600M", "more than 600M"],
        ),
        (
            [*SUBMIT, *GOOD, "-M", "600M", "--memory-most", "1G"],
            1,
            ["restart.memory_factor is not set", "a number above 1"],
        ),
        (
            [*SUBMIT, *GOOD, "-M", "600M", "--memory-factor", "2", "--retries", "0"],
            1,
            ["max_retries is 0", "1 to 100"],
        ),
        ([*SUBMIT, *GOOD, "--keep-checkpoints", "0"], 2, ["--keep-checkpoints", "1 to 100"]),
        (
            [*SUBMIT, *GOOD, "--keep-checkpoints", "2", "--array", "0-3"],
            1,
            ["checkpoint.keep is 2", "leave it out"],
        ),
        ([*SUBMIT, *GOOD, "-F", "caffe"], 1, ["caffe", "tensorflow"]),
        ([*SUBMIT, *GOOD, "-F", "tensorflow", "-V", "99"], 1, ["tensorflow", "99"]),
        ([*SUBMIT, *GOOD, "-w", "100"], 1, ["worker_count makes 101 tasks", "at most 64"]),
        ([*SUBMIT, *GOOD, "-p", "1", "-F", "jax"], 1, ["parameter servers", "recipe jax"]),
        ([*SUBMIT, *GOOD, "-w", "2", "-F", "python"], 1, ["framework is python", "recipe"]),
        ([*SUBMIT, *GOOD, "-w", "2", "--recipe", "horovod"], 1, ["recipe is 'horovod'", "cluster"]),
        ([*SUBMIT, *GOOD, "--array", "5-2"], 1, ["array is '5-2'", "ends before", "0-15"]),
        ([*SUBMIT, *GOOD, "--array", "0-9%0"], 1, ["array is '0-9%0'", "%1 or more"]),
        ([*SUBMIT, *GOOD, "--array", "1,1"], 1, ["index 1 is in it twice", "each index once"]),
        ([*SUBMIT, *GOOD, "--array=-1"], 1, ["array is '-1'", "indexes from 0"]),
        ([*SUBMIT, *GOOD, "--array", "0-5000%1"], 1, ["5001 tasks", "at most 1000"]),
        ([*SUBMIT, *GOOD, "--array", "0-99%65"], 1, ["runs 65 tasks at a time", "%64"]),
        ([*SUBMIT, *GOOD, "--array", "0-9", "-w", "2"], 1, ["worker_count", "leave it out"]),
        ([*SUBMIT, *GOOD, "--array", "0-9", "-p", "2"], 1, ["ps_count", "leave it out"]),
        (
            [*SUBMIT, *GOOD, "--array", "0-9", "-cs", '{"a": {}}'],
            1,
            ["array and cluster_spec are both set"],
        ),
        ([*SUBMIT, *GOOD, "--max-failed", "1"], 1, ["max_failed is 1", "0 for a job without"]),
        ([*SUBMIT, *GOOD, "--recipe", "array"], 1, ["array is not set", "0-15"]),
        ([*SUBMIT, *GOOD, "-fb", "not-mine"], 1, ["fds_bucket", "not-mine"]),
        ([*SUBMIT, *GOOD, "--env", "1X=2"], 1, ["1X"]),
        ([*SUBMIT, *GOOD, "--env", "NOT_SET_ANYWHERE"], 2, ["NOT_SET_ANYWHERE", "NAME=VALUE"]),
        ([*SUBMIT, *GOOD, "--epochs", "3"], 2, ["--epochs", "`--`"]),
        ([*SUBMIT, "bad", "trainer.task"], 2, ["trainer_uri"]),
        ([*SUBMIT, "-f", "/no/such/job.toml"], 1, ["/no/such/job.toml"]),
        (["jobs", "describe", "no-such-job"], 1, ["no-such-job"]),
        (["jobs", "logs", "no-such-job", "-f"], 1, ["no-such-job"]),
        (["jobs", "cancel", "no-such-job"], 1, ["no-such-job"]),
        (["jobs", "start", "no-such-job"], 1, ["no-such-job"]),
        (["jobs", "delete", "no-such-job"], 1, ["no-such-job"]),
        (["jobs", "describe", "../../etc"], 1, ["../../etc", "not_found"]),
        (["jobs", "list", "--state", "asleep"], 1, ["state", "asleep", "Running"]),
        (["jobs", "lst"], 2, ["lst", "list"]),
        (["storage", "cp", "/no/such/file", "fds://cloudml/x"], 1, ["/no/such/file"]),
        (["storage", "cp", "a", "b"], 2, ["fds://"]),
        (["storage", "cat", "fds://cloudml/no/such"], 1, ["no/such", "cloudml"]),
        (["storage", "ls", "fds://not-mine/"], 1, ["not-mine"]),
        (["storage", "mb", "Bad_Bucket"], 1, ["Bad_Bucket"]),
        (["--context", "nowhere", "jobs", "list"], 1, ["nowhere"]),
        (["--endpoint", "ftp://x", "jobs", "list"], 1, ["endpoint", "ftp://x"]),
    ],
    ids=lambda value: (
        " ".join(value).replace(PLAIN, "FOLDER") if isinstance(value, list) else str(value)
    ),
)
def test_bad_words_on_the_command_line(
    server: RealServer, words: list[str], code: int, expected: list[str]
) -> None:
    ran = server.cli(*words)
    assert (ran.code, ran.out) == (code, "")
    assert [word for word in expected if word not in ran.err] == [], ran.err
    assert "Traceback" not in ran.err
    assert "(code: " in ran.err


def test_a_name_that_is_taken(server: RealServer) -> None:
    submit = [*SUBMIT, "taken", "trainer.task", PLAIN, "--save_mode"]
    server.cli(*submit).good()
    again = server.cli(*submit)
    assert again.code == 1
    assert "a job named taken exists already (Saved)" in again.err


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"CLOUDML_SECRET_KEY": "wrong"}, ["signature is wrong", "secret", "unauthenticated"]),
        ({"CLOUDML_ACCESS_KEY": "nobody"}, ["signature is wrong", "unauthenticated"]),
        (
            {"CLOUDML_ENDPOINT": "http://127.0.0.1:1"},
            ["nothing listens at http://127.0.0.1:1", "cloudml server"],
        ),
        ({"CLOUDML_ENDPOINT": "http://no-such-host.invalid"}, ["no-such-host.invalid"]),
        ({"CLOUDML_SECRET_KEY": ""}, ["secret_key is missing"]),
    ],
    ids=["wrong secret", "unknown key", "no server", "unknown host", "half a key"],
)
def test_a_wrong_key_or_a_wrong_server(
    server: RealServer, variables: dict[str, str], expected: list[str]
) -> None:
    ran = server.cli("jobs", "list", **variables)
    assert (ran.code, ran.out) == (1, "")
    assert [word for word in expected if word not in ran.err] == [], ran.err


def test_a_user_without_settings_is_told_how_to_get_some(server: RealServer) -> None:
    ran = server.cli("jobs", "list", home=server.user_home)
    assert ran.code == 1
    assert "cloudml config init" in ran.err


def test_an_https_endpoint_of_a_plain_server(server: RealServer) -> None:
    ran = server.cli("jobs", "list", CLOUDML_ENDPOINT=server.endpoint.replace("http:", "https:"))
    assert ran.code == 1
    assert "http://" in ran.err


@pytest.mark.parametrize("off", [timedelta(days=1), timedelta(days=-1), timedelta(seconds=301 + 5)])
def test_a_clock_that_is_off_is_told_the_servers_time(server: RealServer, off: timedelta) -> None:
    keys, target = server.credentials, "/api/v1/jobs"
    headers = signature.sign(
        "GET",
        target,
        key=keys["access_key"],
        secret=keys["secret_key"],
        now=datetime.now(UTC) + off,
        content=signature.content_sha256(b""),
    )
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("GET", target, headers=headers)
    answer = connection.getresponse()
    error = json.loads(answer.read())
    connection.close()
    assert (answer.status, error["code"]) == (401, "unauthenticated")
    assert "clock" in error["message"] + error.get("hint", "")
    year = str(datetime.now(UTC).year)
    assert year in json.dumps(error) or str(int(datetime.now(UTC).timestamp()))[:6] in json.dumps(
        error
    )
