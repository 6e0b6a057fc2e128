"""What is drawn of a study: its trials with their values of each objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cloud_ml.cli.display.drawing import Axis, is_number, objective_axis
from cloud_ml.models.studies.readouts import StudyCurves, StudyImportance
from cloud_ml.models.studies.study import Study, Trial, objectives_of, values_of

KINDS = ("pareto", "history", "importance", "curves", "parallel", "contour", "slice")
"""Of plots, in the order in which they are drawn."""


@dataclass(frozen=True)
class ObjectiveValues:
    """An objective, and the trials that have a value of it.

    Attributes:
        name: The metric.
        is_max: Whether more is better.
        index: Which objective of the study it is.
        trials: The trials with a finite value.
        axis: Where values lie.
    """

    name: str
    is_max: bool
    index: int
    trials: Sequence[Trial]
    axis: Axis

    def of(self, trial: Trial) -> float:
        """The value of a trial that has one."""
        value = _value_of(trial, self.index)
        assert value is not None
        return value

    def goodness(self, trial: Trial) -> float:
        """Where a trial stands from the worst of all, 0, to the best, 1."""
        place = self.axis.place(self.of(trial))
        return place if self.is_max else 1 - place


@dataclass(frozen=True)
class DrawnStudy:
    """A study and what was read out of it; parts that are not there are not drawn."""

    study: Study
    objectives: Sequence[ObjectiveValues]
    importance: Sequence[StudyImportance] = ()
    curves: StudyCurves | None = None


def drawn_study(
    study: Study, importance: Sequence[StudyImportance] = (), curves: StudyCurves | None = None
) -> DrawnStudy:
    """What is to be drawn."""
    objectives = []
    for index, (metric, is_max) in enumerate(objectives_of(study)):
        trials = [trial for trial in study.trials if is_number(_value_of(trial, index))]
        values = [value for value in (_value_of(one, index) for one in trials) if value is not None]
        axis = objective_axis(metric, values, is_max=is_max)
        objectives.append(ObjectiveValues(metric, is_max, index, trials, axis))
    return DrawnStudy(study, objectives, importance, curves)


def parameter_names(drawn: DrawnStudy) -> list[str]:
    """The parameters, the most important first; else as in the space, or as trials name them."""
    study = drawn.study
    known = list(study.space) or sorted({name for one in study.trials for name in one.parameters})
    ranked = [one.name for found in drawn.importance[:1] for one in found.parameters]
    first = [name for name in ranked if name in known]
    return [*first, *(name for name in known if name not in first)]


def is_completed(trial: Trial) -> bool:
    """Whether it may be the best."""
    return trial.state == "Completed"


def _value_of(trial: Trial, index: int) -> float | None:
    values = values_of(trial)
    return values[index] if index < len(values) else None
