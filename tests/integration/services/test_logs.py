"""What replicas said is there for whoever follows them, to the last line, and can be read when
they are no more.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cloud_ml.errors import InvalidRequest
from support.server import RealServer, eventually, serving
from support.services import ServiceApi, running
from support.serving import save_linear

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("replica-logs")]

KEPT = 2
LAST_WORDS = "for line in 1 2 3 4 5 6 7 8 9; do echo leaving $line; done; printf 'the end'"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    settings = {"CLOUDML_GATEWAY_KEPT_REPLICAS": KEPT, "CLOUDML_ENGINE_KEPT_ATTEMPTS": 2}
    with serving(tmp_path_factory.mktemp("server"), **settings) as running:
        save_linear(running.folder / "linear")
        running.client().storage.upload(
            running.folder / "linear" / "model.onnx", "fds://cloudml/linear/1/model.onnx"
        )
        yield running


@pytest.fixture(scope="module")
def ask(server: RealServer) -> ServiceApi:
    return ServiceApi(server)


@pytest.fixture(scope="module")
def first(ask: ServiceApi) -> dict[str, Any]:
    """The first replica of a service that says much when it goes."""
    service = {
        "model_name": "linear",
        "model_version": "v1",
        "model_uri": "fds://cloudml/linear",
        "finish_command": LAST_WORDS,
    }
    ask("POST", "", service)
    found: dict[str, Any] = ask.until("/linear/v1", running(1))["replicas"][0]
    return found


class Follower:
    """Reads the log of a replica to its end, in a thread."""

    def __init__(self, server: RealServer) -> None:
        self.log = b""
        self.begun = threading.Event()
        self._log = server.client().get_model_service("linear", "v1").logs(follow=True)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        assert self.begun.wait(30)

    def _read(self) -> None:
        for chunk in self._log:
            self.log += chunk
            self.begun.set()

    def whole(self) -> bytes:
        self._thread.join(60)
        assert not self._thread.is_alive(), "it ends with the replica"
        return self.log


def test_who_follows_hears_the_last_word_and_others_can_read_it_later(
    server: RealServer, ask: ServiceApi, first: dict[str, Any]
) -> None:
    followers = [Follower(server) for _ in range(3)]
    server.kill()
    server.start()  # connections are cut, the replica is not
    ask("PATCH", "/linear/v1", {"environment": {"COLOUR": "blue"}})
    rolled = ask.until("/linear/v1", lambda one: running(1)(one) and one["ended"])
    (ended,) = rolled["ended"]
    assert (ended["number"], ended["uid"], ended["phase"], ended["release"]) == (
        1,
        first["uid"],
        "Stopped",
        1,
    )
    assert ended["finished_at"]
    chunks = server.client().get_model_service("linear", "v1").logs(previous=True)
    kept = b"".join(chunks)
    assert kept.endswith(b"leaving 8\nleaving 9\nthe end")
    for follower in followers:
        assert follower.whole() == kept, "neither lost nor repeated"

    assert server.cli("models", "logs", "linear", "v1", "--previous").good().out.encode() == kept
    assert (
        server.cli("models", "logs", "linear", "v1", "--replica", "1").good().out.encode() == kept
    )
    assert "leaving" not in server.cli("models", "logs", "linear", "v1").good().out, (
        "of those that run"
    )
    shown = server.cli("models", "describe", "linear", "v1").good().out
    assert "Replicas that have ended (its log: cloudml models logs linear v1 --replica 1):" in shown
    assert not (server.data / "engine" / "jobs" / first["uid"] / "work").exists(), (
        "only what it said is left of it"
    )


def test_why_a_replica_died_is_in_its_log_and_of_its_attempts_the_latest_are_kept(
    server: RealServer, ask: ServiceApi
) -> None:
    (replica,) = ask.until("/linear/v1", running(1))["replicas"]
    for attempt in (1, 2, 3):

        def again(one: Any, attempt: int = attempt) -> bool:
            return running(1)(one) and one["replicas"][0]["attempt"] == attempt

        ask.until("/linear/v1", again)
        if attempt < 3:
            (root, *_) = server.processes_of(replica["uid"], attempt)
            os.kill(root, signal.SIGKILL)
    handle = server.client().get_model_service("linear", "v1")
    attempts = [b"".join(handle.logs(attempt=attempt)) for attempt in (1, 2, 3)]
    assert [b"is ready" in log for log in attempts] == [False, True, True]
    assert b"".join(handle.logs()) == attempts[1] + attempts[2]


def test_who_follows_a_service_hears_the_replicas_that_come_until_it_is_at_rest(
    server: RealServer, ask: ServiceApi
) -> None:
    service = {
        "model_name": "linear",
        "model_version": "followed",
        "model_uri": "fds://cloudml/linear",
        "prepare_command": "echo prepared as $COLOUR; while [ -e /storage/cloudml/hold ]; do sleep "
        "0.1; done",
        "environment": {"COLOUR": "red"},
        "finish_command": LAST_WORDS,
    }
    ask("POST", "", service)
    storage, model = server.client().storage, server.folder / "linear" / "model.onnx"
    with server.spawn("models", "logs", "linear", "followed", "-f") as printed:
        assert printed.stdout is not None
        assert printed.stderr is not None
        lines_printed = [printed.stdout.readline()]
        ask.until("/linear/followed", running(1))
        storage.upload(model, "fds://cloudml/hold")  # the first is there until the second is heard
        ask("PATCH", "/linear/followed", {"environment": {"COLOUR": "blue"}})
        while "[2] prepared as blue\n" not in lines_printed:
            lines_printed.append(printed.stdout.readline())
            assert lines_printed[-1]
        server.kill()
        server.start()
        storage.delete("fds://cloudml/hold")
        ask.until("/linear/followed", lambda one: running(1)(one) and one["ended"])
        ask("POST", "/linear/followed/stop")
        lines_printed += printed.stdout.read().splitlines(keepends=True)
        assert printed.wait(30) == 0
        assert (
            "there is replica 2, too: lines begin with the number of their replica from now on"
            in printed.stderr.read()
        )
    assert lines_printed[0] == "prepared as red\n"
    assert [line for line in lines_printed if line.endswith("the end\n")] == [
        "[1] the end\n",
        "[2] the end\n",
    ]
    assert sum("leaving 5" in line for line in lines_printed) == 2, "neither lost nor repeated"
    ask("DELETE", "/linear/followed")


def test_a_service_that_is_stopped_tells_what_it_said_and_only_the_last_are_kept(
    server: RealServer, ask: ServiceApi
) -> None:
    ask("PATCH", "/linear/v1", {"replicas": 2})
    ask.until("/linear/v1", running(2))
    ask("POST", "/linear/v1/stop")
    stopped = ask.until(
        "/linear/v1", lambda one: one["phase"] == "Stopped" and len(one["ended"]) == KEPT
    )
    assert not stopped["replicas"]
    assert {one["number"] for one in stopped["ended"]} == {2, 3}
    printed = server.cli("models", "logs", "linear", "v1").good()
    assert printed.out.endswith("leaving 9\nthe end")
    assert "linear v1 has no replica now; it is Stopped. Replica" in printed.err
    handle = server.client().get_model_service("linear", "v1")
    with pytest.raises(
        InvalidRequest, match=r"replica is 1; there is no such replica of linear/v1"
    ):
        b"".join(handle.logs(replica=1))


def test_what_is_kept_goes_with_its_service_and_who_hears_of_it_hears_the_end(
    server: RealServer, ask: ServiceApi
) -> None:
    heard = server.client().get_model_service("linear", "v1").watch_events()
    reasons = [next(heard).reason]
    kept = [one["uid"] for one in ask("GET", "/linear/v1")["ended"]]
    jobs = server.data / "engine" / "jobs"
    assert all(_logs(jobs, uid) for uid in kept)
    with server.spawn("models", "events", "linear", "v1", "-f") as printed:
        assert printed.stdout is not None
        assert printed.stdout.readline().split() == ["TIME", "TYPE", "REASON", "MESSAGE"]
        lines = [printed.stdout.readline()]
        ask("DELETE", "/linear/v1")
        lines += printed.stdout
    assert printed.returncode == 0
    eventually(lambda: not ask("GET", "")["items"], "the service is gone")
    assert not any(_logs(jobs, uid) for uid in kept)
    reasons += [event.reason for event in heard]
    assert (reasons[0], reasons[-1]) == ("Submitted", "Stopping")
    assert [line.split()[3] for line in lines] == reasons


def _logs(jobs: Path, uid: str) -> list[Path]:
    return list((jobs / uid).glob("*/logs/*.log"))
