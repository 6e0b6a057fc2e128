"""What can be read out of the trials of a study: importance of its parameters, and curves."""

from __future__ import annotations

from dataclasses import dataclass, field

from cloud_ml.models.tracking.metrics import MetricValue


@dataclass(frozen=True, kw_only=True)
class ParameterImportance:
    """How much a parameter matters, by two measures of a forest of regression trees.

    ``low`` and ``high`` are the 5th and the 95th percentile of the trees, each of which is grown on
    trials drawn with replacement: measures whose ranges overlap are not to be told apart.

    Attributes:
        name: The parameter.
        fanova: The share of the objective's variance over the whole space that it alone explains.
        fanova_low: See above.
        fanova_high: See above.
        permutation: How much worse trees predict trials that they have not seen once its values are
            shuffled, as a share of the variance. It may be above 1, and below 0 by chance.
        permutation_low: See above.
        permutation_high: See above.
    """

    name: str
    fanova: float
    fanova_low: float
    fanova_high: float
    permutation: float
    permutation_low: float
    permutation_high: float


@dataclass(frozen=True, kw_only=True)
class StudyImportance:
    """How much the parameters of a study matter for an objective, the most important first.

    Attributes:
        study: Its name.
        objective: The metric.
        trials: From how many trials it was learned; the newest 500 count.
        explained: The share of the variance that the trees predict of trials that they have not
            seen, from 0 to 1. Where it is low, nothing is known yet.
        interactions: The share of the variance that no parameter explains alone.
        parameters: All parameters.
    """

    study: str
    objective: str
    trials: int
    explained: float
    interactions: float
    parameters: list[ParameterImportance] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class RegisteredTrial:
    """The outputs of a trial as a version of a registered model.

    Attributes:
        model: The name of the model.
        version: The number of the version.
        source: The folder of the trial.
        job: The trial's job, which is the run of the version.
    """

    model: str
    version: str
    source: str
    job: str


@dataclass(frozen=True, kw_only=True)
class TrialCurve:
    """What a trial has reported of the objective: values, and the steps that they are of. Of many,
    the lowest and the highest of each part. ``job`` is empty in a local study, whose trials are no
    jobs.
    """

    number: int
    job: str
    state: str
    steps: list[int] = field(default_factory=list)
    values: list[MetricValue] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class StudyCurves:
    """The values that trials reported while they ran. Trials without any are left out."""

    study: str
    objective: str
    curves: list[TrialCurve] = field(default_factory=list)
