"""The line that says where a job stands comes from a stream of changes, and from questions where
there is none.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

from cloud_ml.cli.display import states
from cloud_ml.cli.display.installing import Installing
from cloud_ml.client import CloudMlClient
from cloud_ml.errors import Forbidden
from cloud_ml.models import codec
from cloud_ml.models.job import Job, JobChange, JobTasks
from support.fake_api import make_job
from support.fake_server import ACCESS_KEY, SECRET_KEY, Reply, Seen, json_reply, refusal, serving

PHASES = ["Queued", "Starting", "Running", "Succeeded"]


def jobs(**more: object) -> list[Job]:
    return [
        make_job("a", phase=phase, revision=number, **more)
        for number, phase in enumerate(PHASES, 1)
    ]


class Said:
    """What was said so far; somebody may wait for it."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._more = threading.Condition()

    def __call__(self, line: str) -> None:
        with self._more:
            self.lines.append(line)
            self._more.notify_all()

    def wait_for(self, text: str) -> None:
        with self._more:
            assert self._more.wait_for(lambda: any(text in line for line in self.lines), 20), (
                self.lines
            )


class Server:
    """Tells one change after the other, each when the one before was said."""

    def __init__(self, said: Said, *, streams: bool = True) -> None:
        self.said = said
        self.streams = streams
        self.asked: list[str] = []
        self.told = 0

    def __call__(self, seen: Seen) -> Reply:
        verb = seen.path.removeprefix("/api/v1/jobs/uid-a").strip("/")
        self.asked.append(verb)
        if verb == "tasks":
            return json_reply(codec.encode(JobTasks(attempt=1, items=[])))
        if verb == "watch":
            return (
                Reply(200, self._events(), {})
                if self.streams
                else refusal(Forbidden("no streams"), 403)
            )
        if self.told:
            self.said.wait_for(PHASES[self.told - 1])
        self.told += 1
        return json_reply(codec.encode(jobs()[self.told - 1]))

    def _events(self) -> Iterator[bytes]:
        for number, job in enumerate(jobs(), 1):
            change = codec.encode(
                JobChange(revision=number, uid="uid-a", name="a", org="default", job=job)
            )
            yield f"id: {number}\nevent: job\ndata: {json.dumps(change)}\n\n".encode()
            if not job.finished:
                self.said.wait_for(job.phase)


@pytest.mark.parametrize("streams", [True, False])
def test_every_change_is_said_at_once(streams: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    said = Said()
    monkeypatch.setattr(states, "note", said)
    server = Server(said, streams=streams)
    with serving(server) as fake, CloudMlClient(ACCESS_KEY, SECRET_KEY, fake.endpoint) as client:
        handle = client._handle(make_job("a", phase="Saved", revision=0))
        with states.states(handle, said):
            said.wait_for("Running")
    assert [line.split()[1].strip(":") for line in said.lines] == ["Queued", "Starting", "Running"]
    assert server.asked.count("watch") == 1
    assert ("" in server.asked) is not streams


def test_usage_is_asked_for_while_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    said = Said()
    monkeypatch.setattr(states, "is_live", lambda _: True)
    server = Server(said)
    with (
        serving(server) as fake,
        CloudMlClient(ACCESS_KEY, SECRET_KEY, fake.endpoint) as client,
        states.states(client._handle(make_job("a", phase="Queued")), said),
    ):
        said.wait_for("Succeeded")
    assert server.asked.count("watch") == 1
    assert server.asked.count("tasks") == 2
    assert "a: Starting: preparing the environment" in said.lines


def test_what_the_log_tells_of_an_installation_is_said_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said, installing = Said(), Installing()
    monkeypatch.setattr(states, "is_live", lambda _: True)
    monkeypatch.setattr(states, "LOOK_S", {})  # nothing but the log wakes it
    server = Server(said)
    monkeypatch.setattr(server, "_events", lambda: _starting(said))
    with (
        serving(server) as fake,
        CloudMlClient(ACCESS_KEY, SECRET_KEY, fake.endpoint) as client,
        states.states(client._handle(make_job("a", phase="Queued")), said, installing),
    ):
        said.wait_for("Starting")
        installing.feed(b"Installing 2 packages that no job has needed here before\n")
        said.wait_for("a: Starting: installing 2 packages")
        installing.feed(b"Downloading torch (190.0MiB)\n")
        said.wait_for("0 B of 190 MiB · torch")


def _starting(said: Said) -> Iterator[bytes]:
    job = make_job("a", phase="Starting", revision=1)
    change = codec.encode(JobChange(revision=1, uid="uid-a", name="a", org="default", job=job))
    yield f"id: 1\nevent: job\ndata: {json.dumps(change)}\n\n".encode()
    said.wait_for("torch")


def test_what_is_being_deleted_is_said_to_be() -> None:
    assert (
        states.state_line(make_job("a", phase="Stopping", deleting=True)) == "a: Deleting: Stopping"
    )
