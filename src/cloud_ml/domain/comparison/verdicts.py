"""Whether a job gave the same when it ran again, and if not, why. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cloud_ml.domain.comparison.facts import JobFacts
from cloud_ml.domain.comparison.ranking import Fact, differing_facts, weight_of
from cloud_ml.domain.comparison.series import at_equal_steps
from cloud_ml.domain.metrics.points import Point
from cloud_ml.models.jobs.reproduction import DIFFERS, IDENTICAL, UNKNOWN, WITHIN

SeriesKey = tuple[str, str, str]
"""Task, name and source."""
NOT_REASONS = frozenset({"attempts", "limit", "output", "git", "secret", "data"})
"""Kinds of facts that do not explain another result. Changed data is named object by object."""
_KNOWN_FROM_ENVIRONMENT = frozenset({"code", "framework", "machine", "package"})
_RUNTIME: Fact = ("framework", "runtime")
_MOST_NAMED, _MOST_REASONS = 10, 10


@dataclass(frozen=True)
class RunResult:
    """What a run gave: points by series, and digests of its files."""

    series: Mapping[SeriesKey, Sequence[Point]]
    files: Mapping[str, str]
    facts: JobFacts = field(default_factory=dict)
    end: str = ""
    """How it ended, such as ``Succeeded``."""


@dataclass(frozen=True)
class ResultDifference:
    """``largest`` is infinite where points are missing. ``files`` differ, or are there once only."""

    largest: float
    where: str
    files: Sequence[str]
    within: bool
    series: int
    compared_files: int

    @property
    def none(self) -> bool:
        """Whether everything is equal."""
        return self.largest == 0 and not self.files


@dataclass(frozen=True)
class Verdict:
    """See ``models.jobs.reproduction.Reproduction``."""

    word: str
    because: Sequence[str] = ()
    ask_again: bool = False


def difference_of(first: RunResult, second: RunResult, tolerance: float) -> ResultDifference:
    """Where two results differ. The tolerance is relative for values beyond 1, else absolute."""
    largest, where, within = 0.0, "", True
    for key in sorted(first.series.keys() | second.series.keys()):
        found, place, close = _series_difference(
            first.series.get(key, ()), second.series.get(key, ()), tolerance
        )
        within = within and close
        if found > largest or (found and not where):
            largest, where = found, f"{key[1]} of {key[0]}{place}"
    names = first.files.keys() | second.files.keys()
    files = sorted(name for name in names if first.files.get(name) != second.files.get(name))
    count = len(first.series.keys() | second.series.keys())
    return ResultDifference(largest, where, files, within, count, len(names))


def _series_difference(
    first: Sequence[Point], second: Sequence[Point], tolerance: float
) -> tuple[float, str, bool]:
    """(largest difference, where, whether all are within the tolerance)."""
    steps = [point.step for point in first], [point.step for point in second]
    if steps[0] != steps[1]:
        return math.inf, _missing(*steps), False
    equal = at_equal_steps([first, second])
    if equal is None or not equal.largest:
        return 0.0, "", True
    close = all(
        _close(one.value, other.value, tolerance) for one, other in zip(first, second, strict=True)
    )
    return equal.largest, f" at step {equal.at}", close


def _missing(first: Sequence[int], second: Sequence[int]) -> str:
    if not first or not second:
        return ", which only one of them has reported"
    only = sorted(set(first) ^ set(second))
    if only:
        return f" at step {only[0]}, which only one of them has reported"
    return ", of which one has reported more points"


def _close(one: float, other: float, tolerance: float) -> bool:
    if one == other or (math.isnan(one) and math.isnan(other)):
        return True
    distance = abs(one - other)
    return distance <= tolerance * max(1.0, abs(one), abs(other))


def judge(
    first: RunResult,
    again: RunResult,
    changed: Sequence[str],
    tolerance: float,
    *,
    ended: str = "",
    third: RunResult | None = None,
) -> tuple[Verdict, ResultDifference]:
    """The verdict about a run and one that ran again from its record.

    Args:
        first: The run.
        again: The one that ran again.
        changed: Objects that have changed since, in sentences.
        tolerance: The largest difference that counts as none.
        ended: Why the second one failed, if it did so and the first one did not.
        third: One more run, for what differs without a known reason.
    """
    found = difference_of(first, again, tolerance)
    reasons = [*changed, *fact_reasons(first.facts, again.facts)]
    if ended:
        return Verdict(DIFFERS, [ended, *reasons][:_MOST_REASONS]), found
    if not found.series and not found.compared_files:
        return Verdict(UNKNOWN, ["neither run has metrics or files to compare"]), found
    if found.none:
        return Verdict(IDENTICAL), found
    numbers = found.within and found.series > 0
    if numbers and (not found.files or not reasons):
        return Verdict(WITHIN, reasons[:_MOST_REASONS]), found
    if reasons:
        return Verdict(DIFFERS, reasons[:_MOST_REASONS]), found
    if third is None:
        return Verdict(DIFFERS, ["no reason is known"], ask_again=True), found
    itself = difference_of(again, third, tolerance)
    if itself.none or (itself.within and itself.series > 0):
        same = "ran twice now with the same result, and nothing that is known has changed"
        return Verdict(DIFFERS, [f"it {same}"]), found
    seeded = "is its random seed set, such as from CLOUDML_SEED?"
    what = itself.where or ", ".join(itself.files[:_MOST_NAMED])
    return Verdict(
        DIFFERS, [f"it differs from itself when it runs twice ({what}); {seeded}"]
    ), found


def fact_reasons(first: JobFacts, again: JobFacts) -> list[str]:
    """What is not as it was, the most important first."""
    values = [{fact: one.value for fact, one in facts.items()} for facts in (first, again)]
    found = [
        fact
        for fact in differing_facts(values)
        if fact[0] not in NOT_REASONS and not _is_unknown(fact, first, again)
    ]
    found.sort(key=lambda fact: (-weight_of(fact), fact))
    sentences = []
    for fact in found:
        before, after = first.get(fact), again.get(fact)
        shown = [one.shown[:80] if one else "absent" for one in (before, after)]
        sentences.append(f"{fact[0]} {fact[1]} changed: {shown[0]}, then {shown[1]}")
    return sentences


def _is_unknown(fact: Fact, first: JobFacts, again: JobFacts) -> bool:
    """Whether the second run failed before anybody knew the fact of it, such as its packages."""
    if fact[0] not in _KNOWN_FROM_ENVIRONMENT or _RUNTIME not in first or _RUNTIME in again:
        return False
    # Of code that was not fetched, the URI is known and no digest.
    return fact not in again or "://" in again[fact].value


def sentence(verdict: Verdict, found: ResultDifference, tolerance: float) -> str:
    """The verdict in words."""
    compared = (
        f"{_many(found.series, 'series', 'series')} and {_many(found.compared_files, 'file')}"
    )
    if verdict.word == IDENTICAL:
        return f"identical: {compared}"
    if verdict.word == WITHIN:
        largest = (
            f"the largest difference is {found.largest:.3g}"
            if found.largest
            else "metrics are equal"
        )
        place = f" ({found.where})" if found.where else ""
        files = ""
        if found.files:
            files = f"; {_many(len(found.files), 'file differs', 'files differ')}"
        return f"within {tolerance:g}: {largest}{place}{files}"
    if verdict.word == UNKNOWN:
        return f"unknown: {verdict.because[0]}"
    return f"differs because {verdict.because[0] if verdict.because else 'no reason is known'}"


def _many(count: int, one: str, several: str = "") -> str:
    return f"1 {one}" if count == 1 else f"{count} {several or one + 's'}"
