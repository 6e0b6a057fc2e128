"""Compares jobs and other runs. Blocking, and not quick: it looks at many runs of an experiment."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cloud_ml.domain.comparison.facts import (
    ComparedValue,
    JobFacts,
    facts_of_inputs,
    facts_of_job,
    facts_of_parameters,
    values_of,
)
from cloud_ml.domain.comparison.inputs import InputManifest, changed_objects, manifests_of
from cloud_ml.domain.comparison.ranking import (
    ENOUGH_RUNS,
    MOST_RUNS,
    Fact,
    Facts,
    Ranking,
    rank_differences,
)
from cloud_ml.domain.comparison.series import at_equal_steps
from cloud_ml.domain.jobs.kind import TRAIN_JOB, TrainJobRecord
from cloud_ml.domain.jobs.spec import JobSpec
from cloud_ml.domain.metrics.points import Point
from cloud_ml.domain.metrics.series import SOURCES, Series
from cloud_ml.domain.tracking.filters import Comparison, Entity, Operator
from cloud_ml.domain.tracking.runs import DEFAULT_EXPERIMENT
from cloud_ml.domain.workloads.phases import WorkloadStatus
from cloud_ml.errors import InvalidRequest, NotFound
from cloud_ml.models import codec, common
from cloud_ml.models.tracking.comparison import (
    ComparedFile,
    ComparedMetric,
    ComparedRun,
    RunComparison,
    RunDifference,
)
from cloud_ml.models.tracking.metrics import moment_of, to_wire
from cloud_ml.state.base import StateStore
from cloud_ml.state.metrics import PointRange
from cloud_ml.state.tracking import RunSearch
from cloud_ml.usecases.comparison.code import CodeDifferences
from cloud_ml.usecases.jobs.train_jobs import TrainJobs
from cloud_ml.usecases.tracking.runs import LoggedRun, Runs

LEAST, MOST = 2, 10
_MOST_METRICS, _MOST_POINTS, _MOST_DIFFERENCES = 50, 2000, 500
_READ_TOGETHER = 20
_SEARCH_S = 5.0
_SHOWN = 4
_ERROR_WORDS = ("loss", "error", "rmse", "mse", "mae")


@dataclass(frozen=True)
class Subject:
    """One of the compared runs."""

    run: LoggedRun
    job: TrainJobRecord | None
    facts: JobFacts
    inputs: Mapping[str, InputManifest]
    last: Mapping[str, float]

    @property
    def uid(self) -> str:
        """The uid of the run, which is that of its job."""
        return self.run.row.uid


class Comparisons:
    """Says what runs differ in."""

    def __init__(
        self, store: StateStore, jobs: TrainJobs, runs: Runs, code: CodeDifferences
    ) -> None:
        self._store = store
        self._code = code
        self._jobs = jobs
        self._runs = runs

    def compare(self, org: str, names: Sequence[str], metric: str | None = None) -> RunComparison:
        """Compare runs of an organisation, by the names of jobs or runs, or by uids.

        Raises:
            InvalidRequest: There are too few or too many, several have a name, or none has the
                metric.
            NotFound: There is no such run.
        """
        names = list(dict.fromkeys(names))
        if not LEAST <= len(names) <= MOST:
            raise common.refuse("run", names, f"{LEAST} to {MOST} different jobs or runs")
        subjects = [self.subject(org, name) for name in names]
        if metric is not None and not any(metric in one.last for one in subjects):
            known = sorted({name for one in subjects for name in one.last})
            raise common.refuse("metric", metric, f"one of {', '.join(known[:10]) or 'none'}")
        chosen = metric or _usual_metric(subjects)
        others = self._others(org, subjects, chosen) if chosen else []
        compared = [
            (values_of(one.facts), one.last.get(chosen) if chosen else None) for one in subjects
        ]
        ranking = rank_differences(compared, others)
        files, unknown = self._files(subjects)
        return RunComparison(
            runs=[self._run_view(org, one) for one in subjects],
            metric=chosen,
            ranked_by=ranking.runs,
            enough=ranking.enough,
            said=_sentence(ranking, chosen),
            differences=_differences(ranking, subjects),
            metrics=list(self._metrics(subjects)),
            files=list(files),
            notes=[*_changed_inputs(subjects), *([unknown] if unknown else [])],
        )

    def subject(self, org: str, name: str) -> Subject:
        """A run and what is known of it.

        Raises:
            NotFound: There is no job and no run of that name or uid.
            InvalidRequest: Several runs have the name.
        """
        job, uid = self._find(org, name)
        run = self._runs.describe(org, uid)
        facts = (
            facts_of_parameters(run.params)
            if job is None
            else facts_of_job(job.key.uid, job.spec, job.status)
        )
        manifests = manifests_of(run.row.inputs, listed=True)
        facts = {**facts, **facts_of_inputs(manifests)}
        return Subject(run, job, facts, manifests, {one.name: one.value for one in run.metrics})

    def _files(self, subjects: Sequence[Subject]) -> tuple[Sequence[ComparedFile], str]:
        """The files of the first two jobs that differ, and why there are none."""
        first, second = subjects[0].job, subjects[1].job
        return ((), "") if first is None or second is None else self._code.between(first, second)

    def _find(self, org: str, name: str) -> tuple[TrainJobRecord | None, str]:
        """The job of that name or uid, else the run of that uid, else the only one of that name."""
        try:
            job = self._jobs.find(org, name)
        except NotFound:
            row = self._store.tracking.run(name)
            if row is not None and row.org == org:
                return None, name
        else:
            return job, job.key.uid
        named = (Comparison(Entity.ATTRIBUTE, "run_name", Operator.EQ, name),)
        search = RunSearch(org, None, named, limit=_SHOWN, seconds=_SEARCH_S)
        found = [row.uid for row in self._store.tracking.search(search).items]
        if len(found) > 1:
            raise common.refuse("run", name, f"a uid, as several runs have it: {', '.join(found)}")
        if not found:
            message = f"there is no job and no run {name[:200]}"
            raise NotFound(message, field="job_name", value=name[:200])
        return None, found[0]

    def _others(
        self, org: str, subjects: Sequence[Subject], metric: str
    ) -> list[tuple[Facts, float]]:
        """Other runs of the experiments that have the metric, the newest first.

        In the default experiment, which has anything, only jobs of the same module are looked at.
        """
        experiments = sorted({one.run.row.experiment for one in subjects})
        has = Comparison(Entity.METRIC, metric, Operator.IS_NOT_NULL)
        # Ask for a few more than needed, because the result also contains the compared runs.
        search = RunSearch(org, experiments, (has,), limit=MOST_RUNS + MOST, seconds=_SEARCH_S)
        try:
            found = self._store.tracking.search(search).items
        except InvalidRequest:  # the search takes too long
            return []
        mine = {one.uid for one in subjects}
        rows = [row for row in found if row.uid not in mine]
        modules = {one.job.spec.submitted.module_name for one in subjects if one.job}
        values = self._store.tracking.last_values([row.uid for row in rows], [metric])
        others: list[tuple[Facts, float]] = []
        for start in range(0, len(rows), _READ_TOGETHER):
            part = rows[start : start + _READ_TOGETHER]
            facts = self._facts([row.uid for row in part])
            for row in part:
                last = values.get(row.uid, ())
                known = facts.get(row.uid)
                if not last or known is None or math.isnan(last[0].value):
                    continue
                alike = known.get(("module", "name")) in modules
                if alike or row.experiment != DEFAULT_EXPERIMENT:
                    others.append((known, last[0].value))
        return others

    def _facts(self, uids: Sequence[str]) -> dict[str, Facts]:
        stored = self._store.documents(TRAIN_JOB, uids)
        params = self._store.tracking.params(uids)
        inputs = self._store.tracking.inputs(uids)
        found: dict[str, Facts] = {}
        for uid in uids:
            if uid in stored:
                spec = codec.decode(JobSpec, stored[uid][0], ignore_unknown=True)
                status = codec.decode(WorkloadStatus, stored[uid][1], ignore_unknown=True)
                facts = facts_of_job(uid, spec, status)
            else:
                facts = facts_of_parameters(params.get(uid, {}))
            data = facts_of_inputs(manifests_of(inputs.get(uid, "[]")))
            found[uid] = values_of({**facts, **data})
        return found

    def _metrics(self, subjects: Sequence[Subject]) -> Iterator[ComparedMetric]:
        names = sorted({name for one in subjects for name in one.last})[:_MOST_METRICS]
        series = [self._series(one) for one in subjects]
        for name in names:
            last = [one.last.get(name) for one in subjects]
            shown = [None if value is None else to_wire(value) for value in last]
            found = [each[name] for each in series if name in each]
            equal = (
                at_equal_steps([self._points(one) for one in found])
                if len(found) == len(subjects)
                else None
            )
            if equal is None:
                yield ComparedMetric(name=name, last=shown)
                continue
            yield ComparedMetric(
                name=name,
                last=shown,
                step=equal.step,
                at_step=[to_wire(value) for value in equal.values],
                steps=equal.steps,
                largest_difference=to_wire(equal.largest),
                differs_at=equal.at if equal.largest else None,
            )

    def _series(self, subject: Subject) -> dict[str, Series]:
        """The series of each name that stands for the run: that of its first task."""
        tasks = subject.job.spec.workload.tasks if subject.job else ()
        order = {task: at for at, task in enumerate(tasks)}
        found: dict[str, Series] = {}
        ranked = sorted(
            self._store.metrics.series(subject.uid),
            key=lambda one: (order.get(one.task, len(order)), SOURCES.index(one.source)),
        )
        for one in ranked:
            found.setdefault(one.name, one)
        return found

    def _points(self, series: Series) -> Sequence[Point]:
        return self._store.metrics.points(series.number, PointRange(most=_MOST_POINTS))

    def _run_view(self, org: str, subject: Subject) -> ComparedRun:
        row, job = subject.run.row, subject.job
        group = self._store.tracking.experiment(org, row.experiment)
        name = "Default" if group is None else group.name
        if job is None:
            return ComparedRun(
                uid=row.uid, name=row.name, experiment=name, is_job=False, state=row.state.value,
                created_at=moment_of(row.start),
                duration_s=None if row.end is None else (row.end - row.start) / 1000,
            )  # fmt: skip
        status = job.status
        begun, ended = status.started_at, status.finished_at
        stages = {
            stage: round((at - job.created_at).total_seconds(), 3)
            for stage, at in status.stages.items()
        }
        return ComparedRun(
            uid=row.uid,
            name=job.key.name,
            experiment=name,
            is_job=True,
            state=status.phase.value,
            reason=status.reason,
            created_at=job.created_at,
            duration_s=(ended - begun).total_seconds() if begun and ended else None,
            attempt=status.attempt,
            stages=stages,
            cpu_seconds=status.usage.cpu_seconds,
            memory_peak_bytes=status.usage.memory_peak_bytes,
            outputs=status.outputs.files if status.outputs else 0,
            output_bytes=status.outputs.bytes if status.outputs else 0,
        )


def _usual_metric(subjects: Sequence[Subject]) -> str:
    """A metric that all runs have, else some: one that sounds like an error if there is one."""
    common_names = set.intersection(*(set(one.last) for one in subjects))
    names = sorted(common_names or {name for one in subjects for name in one.last})
    usual = [name for name in names if any(word in name.lower() for word in _ERROR_WORDS)]
    val = [name for name in usual if "val" in name.lower() or "eval" in name.lower()]
    return next(iter([*val, *usual, *names]), "")


def _changed_inputs(subjects: Sequence[Subject]) -> list[str]:
    """The objects that changed between the first run and the second."""
    first, second = subjects[0].inputs, subjects[1].inputs
    return [
        change
        for uri in first
        if uri in second
        for change in changed_objects(first[uri], second[uri])
    ]


def _differences(ranking: Ranking, subjects: Sequence[Subject]) -> list[RunDifference]:
    return [
        RunDifference(
            kind=one.fact[0],
            name=one.fact[1],
            values=[_show_fact(each.facts, one.fact) for each in subjects],
            effect=one.effect,
            share=one.share,
            other_runs=one.runs,
        )
        for one in ranking.facts[:_MOST_DIFFERENCES]
    ]


def _show_fact(facts: JobFacts, fact: Fact) -> str | None:
    found: ComparedValue | None = facts.get(fact)
    return None if found is None else found.shown


def _sentence(ranking: Ranking, metric: str) -> str:
    if not ranking.facts:
        return "nothing that is known of the runs differs"
    if not metric:
        return "no run has a metric; the order is that of what matters in general"
    if ranking.enough:
        effects = [abs(one.effect) for one in ranking.facts if one.effect is not None]
        if not effects or math.isclose(max(effects), 0.0, abs_tol=1e-12):
            return f"none of these changes has changed {metric} in {ranking.runs} other runs"
        return f"the order is that of the likely effect on {metric}, by {ranking.runs} other runs"
    other = "run has" if ranking.runs == 1 else "runs have"
    return (
        f"{ranking.runs} other {other} {metric}, {ENOUGH_RUNS} are needed to judge effects; "
        "the order is that of what matters in general"
    )
