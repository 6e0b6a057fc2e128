"""A model service on a real server: replicas that come, answer, are replaced, and go."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.replica_sockets import replica_folder
from support.server import RealServer, eventually, serving
from support.services import ServiceApi, running
from support.serving import save_linear

pytestmark = pytest.mark.xdist_group("replicas")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with serving(tmp_path_factory.mktemp("server")) as running:
        save_linear(running.folder / "linear")
        running.client().storage.upload(
            running.folder / "linear" / "model.onnx", "fds://cloudml/linear/1/model.onnx"
        )
        yield running


@pytest.fixture
def ask(server: RealServer) -> ServiceApi:
    return ServiceApi(server)


def test_the_life_of_a_service(server: RealServer, ask: ServiceApi) -> None:
    made = ask(
        "POST",
        "",
        {"model_name": "linear", "model_version": "v1", "model_uri": "fds://cloudml/linear"},
    )
    assert made["phase"] == "Starting"
    first = ask.until("/linear/v1", running(1))["replicas"][0]

    (root, *_) = server.processes_of(first["uid"])
    os.kill(root, signal.SIGKILL)
    again = ask.until(
        "/linear/v1", lambda one: running(1)(one) and one["replicas"][0]["attempt"] == 2
    )
    assert again["replicas"][0]["uid"] == first["uid"], "the same replica, another attempt"

    ask("PATCH", "/linear/v1", {"replicas": 2})
    ask.until("/linear/v1", running(2))
    ask("PATCH", "/linear/v1", {"environment": {"COLOUR": "blue"}})
    rolled = ask.until(
        "/linear/v1", lambda one: running(2)(one) and first["uid"] not in str(one["replicas"])
    )
    assert {each["number"] for each in rolled["replicas"]}.isdisjoint({1, 2})

    server.kill()
    server.start()
    after = ask.until("/linear/v1", running(2))
    assert {each["uid"] for each in after["replicas"]} == {
        each["uid"] for each in rolled["replicas"]
    }
    assert {each["attempt"] for each in after["replicas"]} == {1}, "nothing was started again"

    ask("POST", "/linear/v1/stop?grace=0")
    ask.until("/linear/v1", lambda one: one["phase"] == "Stopped" and not one["replicas"])
    ask("DELETE", "/linear/v1")
    eventually(lambda: not ask("GET", "")["items"], "the service is gone")


def test_a_service_without_a_model_says_so(server: RealServer, ask: ServiceApi) -> None:
    ask(
        "POST",
        "",
        {"model_name": "none", "model_version": "v1", "model_uri": "fds://cloudml/nothing"},
    )
    failed = ask.until("/none/v1", lambda one: one["phase"] == "Failed")
    assert failed["reason"] == "ModelNotFound"
    assert failed["message"].startswith(
        "fds://cloudml/nothing has no model: looked for a folder with a number"
    )
    assert "; there is nothing; beside it there is fds://cloudml/" in failed["message"]
    shown = server.cli("models", "describe", "none", "v1").good().out
    assert "See what is there: cloudml storage ls -r fds://cloudml/nothing" in shown
    assert "models logs" not in shown

    server.client().storage.upload(
        server.folder / "linear" / "model.onnx", "fds://cloudml/nothing/1/model.onnx"
    )
    ask("POST", "/none/v1/stop")
    ask.until("/none/v1", lambda one: one["phase"] == "Stopped" and not one["replicas"])
    ask("POST", "/none/v1/start")
    ask.until("/none/v1", running(1))


def test_commands_before_and_after_a_replica(server: RealServer, ask: ServiceApi) -> None:
    storage = server.client().storage
    storage.upload(
        server.folder / "linear" / "model.onnx", "fds://cloudml/hold"
    )  # until its output is read: it goes with it
    server.client().secrets.create("paint", "twelve bytes")
    has_sandbox = server.client().server_info().isolation["sandbox"].startswith("bubblewrap")
    secrets = ["paint", "paint=PAINT"] if has_sandbox else ["paint=PAINT"]  # a file takes one
    counted = "$(wc -c < /run/secrets/paint)" if has_sandbox else "12"
    hold = "$CLOUDML_STORAGE/cloudml/hold"
    service = {
        "model_name": "linear", "model_version": "v2", "model_uri": "fds://cloudml/linear",
        "environment": {"COLOUR": "red"}, "secrets": secrets,
        "prepare_command": f"echo prepared as $COLOUR ${{#PAINT}} {counted}",
        "finish_command": f"echo tidied; while [ -e {hold} ]; do sleep 0.1; done",
    }  # fmt: skip
    ask("POST", "", service)
    ask.until("/linear/v2", running(1))
    log = server.client().get_model_service("linear", "v2").logs(follow=True)
    log_so_far = b""
    while b"is ready" not in log_so_far:
        log_so_far += next(log)
    ask("POST", "/linear/v2/stop")
    while b"tidied" not in log_so_far:
        log_so_far += next(log)
    assert (
        log_so_far.index(b"prepared as red 12 12")
        < log_so_far.index(b"is ready")
        < log_so_far.index(b"tidied")
    )
    storage.delete("fds://cloudml/hold")
    ask.until("/linear/v2", lambda one: one["phase"] == "Stopped" and not one["replicas"])
    server.client().secrets.delete("paint")
    ask("POST", "/linear/v2/start")
    failed = ask.until("/linear/v2", lambda one: one["phase"] == "Failed")
    assert failed["reason"] == "SecretNotFound"
    assert "twelve bytes" not in repr(failed) + server.log() + log_so_far.decode()
    ask("DELETE", "/linear/v2")


def test_a_socket_that_is_none_is_not_connected_to(tmp_path: Path) -> None:
    import socket

    from cloud_ml.domain.addresses import JobSocket
    from cloud_ml.errors import Unavailable
    from cloud_ml.job_sockets import JobSockets

    sockets = JobSockets(tmp_path)
    elsewhere, work = replica_folder(tmp_path, "else"), replica_folder(tmp_path, "a1")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(elsewhere / "door"))
        listener.listen()
        sockets.connect(JobSocket("else", "door")).close()  # the control: it can be reached
        (work / "door").symlink_to(elsewhere / "door")
        (work / "file").write_text("")
        os.link(elsewhere / "door", work / "linked")
        if os.geteuid() == 0:
            os.chown(
                work, 12345, 12345
            )  # the tenant's folder, with a link to a socket of somebody else
        refused = ["door", "file", "absent", *(["linked"] if os.geteuid() == 0 else [])]
        for name in refused:
            with pytest.raises(Unavailable):
                sockets.connect(JobSocket("a1", name))
