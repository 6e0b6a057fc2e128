"""The line that says where a job stands comes from a stream of changes, and from questions where
there is none.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from cloud_ml.cli.display import states, task_table
from cloud_ml.cli.display.installing import Installing
from cloud_ml.client import CloudMlClient
from cloud_ml.errors import Forbidden
from cloud_ml.models import codec
from cloud_ml.models.jobs.job import Job, JobChange, JobProgress, JobTask, JobTasks, JobTaskState
from support.fake_api import START, make_job
from support.fake_server import ACCESS_KEY, SECRET_KEY, Reply, Seen, json_reply, refusal, serving

PHASES = ["Queued", "Starting", "Running", "Succeeded"]


def jobs(**more: object) -> list[Job]:
    return [
        make_job("a", phase=phase, revision=number, **more)
        for number, phase in enumerate(PHASES, 1)
    ]


class Notes:
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

    def __init__(self, notes: Notes, *, streams: bool = True) -> None:
        self.notes = notes
        self.streams = streams
        self.verbs: list[str] = []
        self.changes_sent = 0

    def __call__(self, seen: Seen) -> Reply:
        verb = seen.path.removeprefix("/api/v1/jobs/uid-a").strip("/")
        self.verbs.append(verb)
        if verb == "tasks":
            return json_reply(codec.encode(JobTasks(attempt=1, items=[])))
        if verb == "watch":
            return (
                Reply(200, self._events(), {})
                if self.streams
                else refusal(Forbidden("no streams"), 403)
            )
        if self.changes_sent:
            self.notes.wait_for(PHASES[self.changes_sent - 1])
        self.changes_sent += 1
        return json_reply(codec.encode(jobs()[self.changes_sent - 1]))

    def _events(self) -> Iterator[bytes]:
        for number, job in enumerate(jobs(), 1):
            change = codec.encode(
                JobChange(revision=number, uid="uid-a", name="a", org="default", job=job)
            )
            yield f"id: {number}\nevent: job\ndata: {json.dumps(change)}\n\n".encode()
            if not job.finished:
                self.notes.wait_for(job.phase)


@pytest.mark.parametrize("streams", [True, False])
def test_every_change_is_said_at_once(streams: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()
    monkeypatch.setattr(states, "note", notes)
    server = Server(notes, streams=streams)
    with serving(server) as fake, CloudMlClient(ACCESS_KEY, SECRET_KEY, fake.endpoint) as client:
        handle = client._handle(make_job("a", phase="Saved", revision=0))
        with states.states(handle, notes):
            notes.wait_for("Running")
    assert [line.split()[1].strip(":") for line in notes.lines] == ["Queued", "Starting", "Running"]
    assert server.verbs.count("watch") == 1
    assert ("" in server.verbs) is not streams


def test_usage_is_asked_for_while_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()
    monkeypatch.setattr(states, "is_live", lambda _: True)
    server = Server(notes)
    with (
        serving(server) as fake,
        CloudMlClient(ACCESS_KEY, SECRET_KEY, fake.endpoint) as client,
        states.states(client._handle(make_job("a", phase="Queued")), notes),
    ):
        notes.wait_for("Succeeded")
    assert server.verbs.count("watch") == 1
    assert server.verbs.count("tasks") == 2
    assert "a: Starting: preparing the environment" in notes.lines


RUNS = [JobTaskState(name="ps-0", running=True), JobTaskState(name="worker-0", running=True)]


def _after(task: JobTaskState, **changes: Any) -> list[JobTaskState]:
    return [RUNS[0], replace(task, **changes)]


AGAIN = _after(RUNS[1], restarts=1, last_end="worker-0 exited with code 3")
LOST = _after(RUNS[1], running=False, reason="Signaled", message="worker-0 was killed by SIGKILL")


def test_restarts_and_failures_of_tasks_are_lines_where_nothing_is_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each once, and those of the next attempt again."""
    notes = Notes()
    monkeypatch.setattr(states, "note", notes)
    lives = [(1, RUNS), (1, AGAIN), (1, AGAIN), (1, LOST), (2, RUNS), (2, AGAIN)]
    seen = [
        make_job("a", phase="Running", revision=number, attempt=attempt, tasks=tasks)
        for number, (attempt, tasks) in enumerate(lives, 1)
    ]
    handle = Telling(seen)
    teller = states._Teller(handle, notes, Installing())  # type: ignore[arg-type]
    for job in seen:
        teller._note_changes(job)
    assert [line.partition("  [")[0] for line in notes.lines] == [
        "a: worker-0: starts again (1): worker-0 exited with code 3",
        "a: worker-0: worker-0 was killed by SIGKILL",
        "a (attempt 2): Running",
        "a: worker-0: starts again (1): worker-0 exited with code 3",
    ]


def test_a_job_of_several_tasks_has_a_line_for_each_below_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notes = Notes()
    monkeypatch.setattr(states, "is_live", lambda _: True)
    reported = JobProgress(at=START, step=5, of=20, fraction=0.25, metrics={"loss": 0.5})
    items = [
        JobTask(name="ps-0", running=True),
        JobTask(name="worker-0", running=True, restarts=1, last_end="code 3", progress=reported),
    ]
    handle = Telling([make_job("a", phase="Running", tasks=RUNS)], JobTasks(attempt=1, items=items))
    with states.states(handle, notes):  # type: ignore[arg-type]
        notes.wait_for("worker-0")
    assert notes.lines[0].splitlines() == [
        "a: Running",
        "  NAME      STATE    RESTARTS  PROGRESS                     LAST END",
        "  ps-0      Running  0",
        "  worker-0  Running  1         step 5 of 20, 25%, loss 0.5  code 3",
    ]


def test_a_description_has_a_line_for_each_task_without_what_none_has() -> None:
    header, lines = task_table.table(
        [
            JobTask(name="ps-0", running=True, address="ps-0:20000", node="a", cores=0.25),
            JobTask(name="ps-1", running=True, address="ps-1:20001", node="b", restarts=1),
        ]
    )
    assert header == ["  NAME", "STATE", "NODE", "ADDRESS", "RESTARTS", "CORES", "LAST END"]
    assert lines == [
        ["  ps-0", "Running", "a", "ps-0:20000", "0", "0.25", ""],
        ["  ps-1", "Running", "b", "ps-1:20001", "1", "", ""],
    ]
    on_one = [JobTaskState(name=f"ps-{index}", node="a") for index in range(2)]
    assert task_table.table(on_one)[0] == ["  NAME", "STATE", "RESTARTS", "LAST END"]


class Telling:
    """A job as its handle shows it; nothing more happens."""

    def __init__(self, jobs: list[Job], tasks: JobTasks | None = None) -> None:
        self.job = jobs[0]
        self.finished = True
        self._tasks = tasks

    def watch(self) -> Iterator[Job]:
        return iter(())

    def tasks(self) -> JobTasks | None:
        return self._tasks


def test_what_the_log_tells_of_an_installation_is_said_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notes, installing = Notes(), Installing()
    monkeypatch.setattr(states, "is_live", lambda _: True)
    monkeypatch.setattr(states, "LOOK_S", {})  # nothing but the log wakes it
    server = Server(notes)
    monkeypatch.setattr(server, "_events", lambda: _starting(notes))
    with (
        serving(server) as fake,
        CloudMlClient(ACCESS_KEY, SECRET_KEY, fake.endpoint) as client,
        states.states(client._handle(make_job("a", phase="Queued")), notes, installing),
    ):
        notes.wait_for("Starting")
        installing.feed(b"Installing 2 packages that no job has needed here before\n")
        notes.wait_for("a: Starting: installing 2 packages")
        installing.feed(b"Downloading torch (190.0MiB)\n")
        notes.wait_for("0 B of 190 MiB · torch")


def _starting(notes: Notes) -> Iterator[bytes]:
    job = make_job("a", phase="Starting", revision=1)
    change = codec.encode(JobChange(revision=1, uid="uid-a", name="a", org="default", job=job))
    yield f"id: 1\nevent: job\ndata: {json.dumps(change)}\n\n".encode()
    notes.wait_for("torch")


def test_what_is_being_deleted_is_said_to_be() -> None:
    assert (
        states.state_line(make_job("a", phase="Stopping", deleting=True)) == "a: Deleting: Stopping"
    )
