"""Studies and their trials."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StudySettings:
    """How large a study may be."""

    trials_per_study: int = 1000
    """The most trials of one study."""
    parallel_trials: int = 100
    """The most trials of one study that run at a time. They wait for room as all jobs do."""
    reports_per_study: int = 100_000
    """The most values that the trials of a local study report. They are kept in memory while a loop
    runs, some 150 bytes each.
    """
    tuner_processes: int = 3
    """So many tuners run at most. A tuner is a process that chooses parameters with numpy and scipy.
    A further one starts while all others answer, so a slow study holds up no other one. The studies
    of one organisation leave one of them to others, if there are several.
    """
    tuner_memory_bytes: int = 2 << 30
    """The address space of a tuner."""
    tuner_idle_s: float = 60.0
    """A tuner ends when no study has asked it for so long."""
    tuner_answer_s: float = 20.0
    """A tuner is killed when an answer takes longer. The trial then has an even point."""
