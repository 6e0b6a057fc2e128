"""What an engine reports about a gang: the processes of one attempt of one job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from cloud_ml.domain.workloads.checkpoints import NotedCheckpoint
from cloud_ml.domain.workloads.phases import Usage
from cloud_ml.domain.workloads.progress import (
    NO_END,
    NOTHING_REACHED,
    Milestone,
    Progress,
    RepeatedEnd,
)
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.domain.workloads.recovery import Recovery


class GangState(StrEnum):
    """How far a gang has come. ``TOMBSTONED`` was stopped before it was ever claimed.

    ``WAITING``: an engine with a queue of its own has taken the gang and found no place for it yet.
    Nothing of it is anywhere; the gang's ``message`` says why in the engine's words.
    """

    WAITING = "Waiting"
    STAGING = "Staging"
    RUNNING = "Running"
    FINISHING = "Finishing"
    EXITED = "Exited"
    LOST = "Lost"
    TOMBSTONED = "Tombstoned"

    @property
    def over(self) -> bool:
        """Whether no process of the gang lives or can come to life."""
        return self in (GangState.EXITED, GangState.LOST, GangState.TOMBSTONED)


@dataclass(frozen=True)
class TaskRestart:
    """An earlier restart of a task, the ``number`` of its attempt: why, after how long, and what it
    went on from.
    """

    number: int
    why: str
    ran_s: float | None = None
    restored_from: NotedCheckpoint | None = None


@dataclass(frozen=True)
class ObservedProcess:
    """One task of the gang. ``reason`` is set when it has ended, ``Completed`` for a good end.

    It has started again alone ``restarts`` times, the last time because of ``last_end``: that end
    had ``last_reason``, and ``last_exit_code`` or ``last_signal``. ``quick_failures`` are those
    starts in a row that failed within a minute, ``same_ends`` those that ended in the same way
    without progress. ``progress`` is what it had reported when it ended. One that is ``restarting``
    has ended and starts again soon. Before its last restart it had run for ``last_ran_s`` seconds;
    it went on from ``restored_from``. ``requested_restarts`` is the number of the last restart that
    was asked for. It may be under way; two requests in a short time are one restart.
    ``free_restarts`` of its restarts cost no budget, or not any more. It runs on the machine
    ``node``; empty where there is only one. ``earlier_restarts`` are the last of those before its
    last one: nobody may have looked between them. ``found_texts`` are those of its gang's
    ``log_texts`` that the end of its output has, ``found_patterns`` those of its ``log_patterns``.
    """

    role: str
    index: int
    running: bool
    reason: Reason | None = None
    message: str = ""
    exit_code: int | None = None
    signal: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    usage: Usage = field(default_factory=Usage)
    restarts: int = 0
    last_end: str = ""
    last_reason: Reason | None = None
    last_exit_code: int | None = None
    last_signal: str | None = None
    quick_failures: int = 0
    same_ends: RepeatedEnd = NO_END
    progress: Progress | None = None
    restarting: bool = False
    last_ran_s: float | None = None
    restored_from: NotedCheckpoint | None = None
    requested_restarts: int = 0
    free_restarts: int = 0
    node: str = ""
    earlier_restarts: tuple[TaskRestart, ...] = ()
    found_texts: tuple[str, ...] = ()
    found_patterns: tuple[str, ...] = ()

    @property
    def waiting(self) -> bool:
        """Whether it has not started yet: too many others live."""
        return not self.running and self.reason is None

    @property
    def failed(self) -> bool:
        """Whether it has ended badly, and does not start again."""
        return not self.restarting and self.reason not in (None, Reason.COMPLETED)

    @property
    def name(self) -> str:
        """Such as ``worker-1``."""
        return f"{self.role}-{self.index}"


@dataclass(frozen=True)
class UnsavedFiles:
    """Files that an attempt wrote outside its working directory, and that are not kept.

    ``names`` are the paths of the largest as the job sees them. ``complete`` is false if not all
    were counted. ``event_files`` is a folder with event files of TensorBoard, if one was seen.
    """

    count: int = 0
    names: tuple[str, ...] = ()
    complete: bool = True
    event_files: str = ""

    @property
    def sentence(self) -> str:
        """What to tell the user; empty if there are none."""
        if not self.count:
            return ""
        counted = f"{self.count} file" if self.count == 1 else f"{self.count} files"
        number = counted if self.complete else f"at least {counted}"
        verb = "was" if self.count == 1 else "were"
        more = ", …" if self.count > len(self.names) else ""
        pronoun = "it" if self.count == 1 else "them"
        sentence = (
            f"{number} outside the working directory {verb} not kept: "
            f"{', '.join(self.names)}{more}. Write {pronoun} below the working directory."
        )
        if not self.event_files:
            return sentence
        return (
            f"{sentence} Event files of TensorBoard are in {self.event_files}, so their metrics are "
            "not read: log to a relative path, to --output_path or to --tensorboard_logdir."
        )


@dataclass(frozen=True)
class ObservedGang:
    """One attempt as the engine sees it now.

    ``reason`` and ``message`` say why the gang as a whole is over: that of the process that decided
    it, or of a failure before any process ran (``TrainerNotFound``, ``EnvironmentFailed``, …).
    ``notices`` are what the user should know about the code and its environment before it runs.
    ``unsaved_files``, the newest complete ``checkpoint`` and ``milestone``, how far it has come, are
    known at the end, by an engine that can look. ``recoveries`` are the last restarts of tasks alone.
    """

    job_uid: str
    attempt: int
    state: GangState
    reason: Reason | None = None
    message: str = ""
    processes: tuple[ObservedProcess, ...] = ()
    node: str = ""
    processor: str = ""
    runtime: str = ""
    environment_lock: str = ""
    trainer_digest: str = ""
    stages: Mapping[str, datetime] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    unsaved_files: UnsavedFiles = field(default_factory=UnsavedFiles)
    milestone: Milestone = NOTHING_REACHED
    checkpoint: NotedCheckpoint | None = None
    recoveries: tuple[Recovery, ...] = ()

    @property
    def succeeded(self) -> bool:
        """Whether the gang ended, and well."""
        return self.state is GangState.EXITED and self.reason is Reason.COMPLETED

    @property
    def prepared_only(self) -> bool:
        """Whether it ended before its code ran, as in its prepare command. That stands in the place
        of the first process then.
        """
        return self.reason is Reason.PREPARE_FAILED or (
            self.state.over and "environment" in self.stages and "started" not in self.stages
        )
