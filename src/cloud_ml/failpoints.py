"""Named places where a test may have a process of ours die, or stand still, between one line and
the next.

Off, and a comparison with ``None``, unless two variables turn it on: one names a folder, the other
says that this is meant. Then a file of a point's name in that folder is an order for whoever passes
the point first, server, spawner or supervisor: the file is taken (``<point>.reached`` holds the
process id), and the process kills itself, or stops itself where the file says ``stop``. So an order
is carried out once, is given to processes that run, and can be seen to have been carried out.

``tests/faults`` has a row for each point.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path

from cloud_ml.errors import InvalidRequest

FOLDER = "CLOUDML_FAILPOINTS_FOLDER"
ALLOWED = "CLOUDML_FAILPOINTS_ALLOWED"
WORD = "this-server-may-be-killed"

POINTS: Mapping[str, str] = {
    "state.create.before": "a new database is whole, under another name",
    "state.create.after": "it has its name; the draft is still there",
    "state.migrate.before": "the steps to this schema are done and not committed",
    "state.migrate.after": "they are committed",
    "state.commit.before": "a group of writes is done and not committed",
    "state.commit.after": "it is committed; nobody was told",
    "state.backup.before": "a backup is whole, under another name",
    "state.backup.after": "it has its name; the draft is still there",
    "state.restore.before": "a backup was checked and copied beside the database",
    "state.restore.aside": "the replaced database was moved aside; there is none",
    "state.restore.after": "the restored one has its name",
    "metrics.append.before": "metrics of a job were read, and are not stored",
    "metrics.append.after": "they are stored, with the position in their file",
    "metrics.file.before": "points of an event file or a log were read, and are not stored",
    "metrics.file.after": "they are stored, with the position in the file",
    "collector.ask.before": "a piece of a file is about to be parsed",
    "sealing.make.before": "a new sealing key is whole, under another name",
    "start.store": "the database is open",
    "start.made": "organisation, bucket and administrator are there; nobody knows the key",
    "start.told": "the key was written for the operator",
    "start.engine": "the engine is up",
    "start.leads": "the lease is held; no job was looked at",
    "controller.ensure.before": "Starting is committed; nobody was asked to start",
    "controller.ensure.after": "the spawner has the attempt",
    "controller.stop.before": "the request to stop is committed; nobody was asked",
    "controller.stop.after": "the engine was asked to stop",
    "controller.forget.before": "the job may go",
    "controller.forget.between": "the engine has forgotten it; the record is there",
    "controller.forget.after": "the record is gone",
    "outputs.place.after": "some outputs of a job that has ended are stored; its end is not "
    "committed",
    "outputs.collect.after": "all of them are",
    "outputs.delete.after": "the outputs of a deleted job are gone; the engine has not forgotten "
    "it",
    "checkpoints.remove.before": "an older checkpoint of a job is to go; that is committed",
    "checkpoints.remove.after": "it is gone; others that are to go are there",
    "packages.place.before": "a trainer was copied, under another name",
    "packages.place.after": "it has its digest as its name",
    "ledger.gate.before": "a claim or a tombstone is written and not in force",
    "ledger.gate.after": "it is in force; its draft is still there",
    "ledger.write.before": "a report or a request is written, under another name",
    "ledger.forget.begun": "a gate is a tombstone; what was reported of its attempt is there",
    "ledger.forget.between": "the gates are tombstones; the folders are there",
    "spawner.fork.before": "the server has handed over an attempt; there is no supervisor",
    "spawner.tell.before": "there is a supervisor; it does not know its attempt",
    "spawner.tell.after": "it knows; the server was not answered",
    "spawner.bury.before": "a supervisor is gone; nobody has looked after its attempt",
    "spawner.bury.after": "its attempt is over on record; its control groups are there",
    "standby.leave.before": "an interpreter that waited has ended or has been given up; its "
    "supervisor is there",
    "supervisor.claim.before": "an attempt has a supervisor; its gate is open",
    "supervisor.claim.after": "the gate is closed",
    "supervisor.stage.before": "its folders are there",
    "supervisor.stage.after": "its environment is there",
    "supervisor.start.before": "the next step is the user's code",
    "supervisor.start.seats": "each task has a process that waits to become it",
    "supervisor.start.after": "the user's code runs; nobody was told",
    "supervisor.restart.before": "a task has ended and starts again; that is on record",
    "supervisor.restart.after": "it has started again",
    "study.start.before": "a trial has its parameters; its job was not submitted",
    "study.start.after": "its job is there; the study does not know it",
    "study.stop.before": "a trial is to end early; its job was not asked to stop",
    "study.stop.after": "its job was asked to stop",
    "study.checkpoints.before": "all checkpoints of a trial are to go; that is committed",
    "study.checkpoints.after": "they are gone; the study does not know it",
    "study.suggest.before": "the tuner is about to be asked for the parameters of a trial",
    "study.suggest.after": "it has answered; the trial does not have them",
    "task_restart.order.before": "the request for a restart is committed; nobody was asked",
    "task_restart.order.after": "the engine was asked",
    "task_restart.request.taken": "the supervisor has noted that it was asked; the task runs",
    "supervisor.end.before": "every process of the attempt is gone; nobody was told",
    "supervisor.end.after": "the end is on record; the folders are there",
    "supervisor.clean.after": "what the attempt needed is gone",
    "objects.place.before": "an upload is whole and on disk, under another name",
    "objects.place.after": "it has its name; nobody was told",
    "objects.segment.before": "a segment of an upload is written, and not noted",
    "objects.segment.after": "it is noted; nobody was told",
    "objects.part.before": "a part of an upload is whole, under another name",
    "objects.part.after": "it is among the others; nobody was told",
    "objects.join.before": "the parts were copied together; there is no object",
    "objects.join.after": "the object is there; so are its parts",
    "objects.remove.after": "a bucket with objects has lost its name; its content and its record "
    "are there",
    "objects.delete.before": "an object is about to go",
    "objects.delete.after": "it is gone; nobody was told",
}

_folder: Path | None = None


def arm(environment: Mapping[str, str]) -> bool:
    """Turn the points on for this process and its forks, if the variables say so; returns whether
    they are on.

    Raises:
        InvalidRequest: A folder is named, and nothing says that this is meant.
    """
    global _folder  # noqa: PLW0603 - a process has one
    folder = environment.get(FOLDER)
    if not folder:
        return False
    if environment.get(ALLOWED) != WORD:
        raise InvalidRequest(
            f"{FOLDER} is set: this server would kill itself where a test asks for it",
            field=FOLDER,
            value=folder,
            allowed="nothing, outside of tests",
            hint=f"Unset it. A test that means it sets {ALLOWED}={WORD} too.",
        )
    _folder = Path(folder)
    return True


def here(point: str) -> None:
    """The process passes ``point``. It may end here, or stand still until it is told to go on."""
    if _folder is not None:
        _pass(_folder / point)


def _pass(order: Path) -> None:
    assert order.name in POINTS, order.name
    reached = order.with_name(f"{order.name}.reached")
    try:
        order.rename(reached)
    except FileNotFoundError:
        return
    number = signal.SIGSTOP if reached.read_text("ascii").strip() == "stop" else signal.SIGKILL
    reached.write_text(f"{os.getpid()}\n", "ascii")
    os.kill(os.getpid(), number)
