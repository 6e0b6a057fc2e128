"""What an engine reports about a gang: the processes of one attempt of one job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from cloud_ml.domain.workloads.phases import Usage
from cloud_ml.domain.workloads.reasons import Reason


class GangState(StrEnum):
    """How far a gang has come. ``TOMBSTONED`` was stopped before it was ever claimed."""

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
class ObservedProcess:
    """One task of the gang. ``reason`` is set when it has ended, ``Completed`` for a good end."""

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

    @property
    def name(self) -> str:
        """Such as ``worker-1``."""
        return f"{self.role}-{self.index}"


@dataclass(frozen=True)
class UnsavedFiles:
    """Files that an attempt wrote outside its working directory, and that are not kept.

    ``names`` are the paths of the largest as the job sees them. ``complete`` is false if not all
    were counted.
    """

    count: int = 0
    names: tuple[str, ...] = ()
    complete: bool = True

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
        return (
            f"{number} outside the working directory {verb} not kept: "
            f"{', '.join(self.names)}{more}. Write {pronoun} below the working directory."
        )


@dataclass(frozen=True)
class ObservedGang:
    """One attempt as the engine sees it now.

    ``reason`` and ``message`` say why the gang as a whole is over: that of the process that decided
    it, or of a failure before any process ran (``TrainerNotFound``, ``EnvironmentFailed``, …).
    ``notices`` are what the user should know about the code and its environment before it runs.
    ``unsaved_files`` is known at the end, by an engine that can look.
    """

    job_uid: str
    attempt: int
    state: GangState
    reason: Reason | None = None
    message: str = ""
    processes: tuple[ObservedProcess, ...] = ()
    node: str = ""
    runtime: str = ""
    environment_lock: str = ""
    trainer_digest: str = ""
    stages: Mapping[str, datetime] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    unsaved_files: UnsavedFiles = field(default_factory=UnsavedFiles)

    @property
    def succeeded(self) -> bool:
        """Whether the gang ended, and well."""
        return self.state is GangState.EXITED and self.reason is Reason.COMPLETED
