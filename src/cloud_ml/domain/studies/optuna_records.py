"""What is kept of studies and trials that Optuna's client made, beside what all studies have.

Values are texts: floats as Python writes them, which are exact and may be no number, and attributes
and distributions as the JSON that the client sent.
"""

from __future__ import annotations

from dataclasses import dataclass, field

STUDY_LABEL_OF_JOBS = "optuna-study"
"""The label of a job with the name of a study that it may use, although another has made it."""


@dataclass(frozen=True, kw_only=True)
class OptunaStudy:
    """A study as Optuna sees it.

    Attributes:
        name: The name that its user gave; the record's own name may be another one.
        directions: ``min`` or ``max`` for each of its objectives.
        user: Attributes of its users, as JSON by their keys.
        system: Those of Optuna.
        job: The uid of the job whose code has made it; empty if none has.
    """

    name: str
    directions: tuple[str, ...]
    job: str = ""
    user: dict[str, str] = field(default_factory=dict)
    system: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class OptunaTrial:
    """A trial as Optuna sees it.

    Attributes:
        distributions: Where the value of each parameter is from, as JSON by its name.
        internal: The values, as Optuna's samplers count them.
        user: Attributes of its users, as JSON by their keys.
        system: Those of Optuna.
        values: Of its objectives.
        intermediate: What it reported, by the step as a text.
        started: When it began, as Optuna writes times.
        completed: When it ended.
        key: With what its last change of state was asked for.
    """

    distributions: dict[str, str] = field(default_factory=dict)
    internal: dict[str, str] = field(default_factory=dict)
    user: dict[str, str] = field(default_factory=dict)
    system: dict[str, str] = field(default_factory=dict)
    values: tuple[str, ...] = ()
    intermediate: dict[str, str] = field(default_factory=dict)
    started: str = ""
    completed: str = ""
    key: str = ""

    @property
    def size(self) -> int:
        """Its size in characters, about as it is stored."""
        tables = (self.distributions, self.internal, self.user, self.system, self.intermediate)
        return sum(len(key) + len(text) for table in tables for key, text in table.items())
