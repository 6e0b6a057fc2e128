# Made of aio/study_handle.py by tools/twins.py: change that one, then run `make format`.
"""A study one can hold on to: wait for it, read its trials, end it."""

from __future__ import annotations

from inspect import signature
from typing import Any

from cloud_ml.models.fields import check_options
from cloud_ml.models.jobs.job import JobEvent
from cloud_ml.models.studies.study import STUDY_ALIASES, Study, Trial
from cloud_ml.sdk.studies import Studies


class StudyHandle:
    """A study on the server, and what was last heard of it (``study``).

    It stands for the very study it was made for, not for another one that takes its name later.
    Every method that asks the server raises ``NotFound`` once the study is deleted, and
    ``CloudMlError`` as the client's methods do.
    """

    def __init__(self, studies: Studies, study: Study) -> None:
        self._studies = studies
        self.study = study

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, phase={self.phase!r})"

    @property
    def name(self) -> str:
        """The study's name."""
        return self.study.name

    @property
    def uid(self) -> str:
        """What tells the study from all others, now and later."""
        return self.study.uid

    @property
    def phase(self) -> str:
        """Where the study stood when it was last heard of."""
        return self.study.phase

    def refresh(self) -> Study:
        """Ask how the study stands."""
        self.study = self._studies.describe(self.uid)
        return self.study

    def wait(self, timeout: float | None = None) -> Study:
        """Wait until the study has ended, well or not; look at ``phase`` and ``message``.

        Raises:
            WaitTimedOut: It has not ended after ``timeout`` seconds.
        """
        self.study = self._studies.wait(self.uid, timeout)
        return self.study

    def trials(self) -> list[Trial]:
        """The trials so far, in the order of their numbers."""
        return self.refresh().trials

    def best(self) -> Trial | None:
        """The best trial so far; ``None`` before one has completed, and with several objectives:
        ``study.best_trials`` is their front.
        """
        return self.refresh().best

    def events(self, *, after: int = 0) -> list[JobEvent]:
        """What was said about the study, in order, behind the event with the id ``after``."""
        return self._studies.events(self.uid, after=after)

    def pause(self) -> Study:
        """Let no trial begin until ``resume``. Those that run go on."""
        self.study = self._studies.pause(self.uid)
        return self.study

    def resume(self) -> Study:
        """Go on after ``pause``."""
        self.study = self._studies.resume(self.uid)
        return self.study

    def extend(self, trials: int, **changes: Any) -> Study:
        """Run more trials, also after the end. ``changes`` are those of ``studies.extend``.

        Raises:
            TypeError: There is no such change.
        """
        known = signature(self._studies.extend).parameters
        check_options("extend", changes, known, STUDY_ALIASES)
        self.study = self._studies.extend(self.uid, trials, **changes)
        return self.study

    def stop(self) -> Study:
        """End the study and the trials that run."""
        self.study = self._studies.act(self.uid, "stop")
        return self.study

    def delete(self) -> None:
        """Remove the study with the jobs of its trials."""
        self._studies.delete(self.uid)
