"""Ask and tell: loops of one's own that run the trials of a study."""

from __future__ import annotations

from dataclasses import dataclass, field

from cloud_ml.models.studies.study import Trial


@dataclass(frozen=True, kw_only=True)
class TellTrial:
    """How a trial has ended.

    Attributes:
        number: The trial.
        value: The value of the objective; the last that was reported by default.
        values: The values of several objectives, in the order of the study.
        state: ``completed``, ``failed``, ``infeasible``, ``metric_missing`` or ``stopped``.
        message: Why it has not completed.
    """

    number: int
    value: float | None = None
    values: list[float] = field(default_factory=list)
    state: str = "completed"
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class AskTrial:
    """A request for the next trial of a study.

    Attributes:
        key: The same key gets the same trial, however often it is sent.
        tell: How another trial of the study has ended, which is noted before the next is chosen.
    """

    key: str
    tell: TellTrial | None = None


@dataclass(frozen=True, kw_only=True)
class AskedTrial:
    """The answer to ``AskTrial``: a trial, or ``None`` if there is none left to run; ``reason`` says
    why.
    """

    trial: Trial | None = None
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class ReportTrial:
    """A value of the objective while a trial runs. A step that is not above the last one is the
    same report, sent again.
    """

    number: int
    step: int
    value: float


@dataclass(frozen=True, kw_only=True)
class TrialAdvice:
    """The answer to ``ReportTrial``: whether the trial should end now, and why."""

    stop: bool = False
    reason: str = ""
