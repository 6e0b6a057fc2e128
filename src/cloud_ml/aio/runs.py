"""Runs: jobs, and what was logged without a job."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from cloud_ml.aio.answers import AsyncAnswer
from cloud_ml.aio.experiments import AsyncExperiments
from cloud_ml.aio.transport import AsyncTransport
from cloud_ml.aio.waiting import wait_for_end
from cloud_ml.aio.watching import follow_stream
from cloud_ml.errors import AlreadyExists, NotFound
from cloud_ml.models import codec
from cloud_ml.models.tracking.comparison import RunComparison
from cloud_ml.models.tracking.comparison import with_numbers as comparison_with_numbers
from cloud_ml.models.tracking.metrics import (
    JobSeries,
    LoggedValue,
    MetricPoint,
    MetricSeries,
    SummaryTag,
    read_points,
    to_wire,
)
from cloud_ml.models.tracking.metrics import with_numbers as series_with_numbers
from cloud_ml.models.tracking.run import (
    Run,
    RunChange,
    RunExperiment,
    RunPage,
    experiment_from_mlflow,
    with_numbers,
)
from cloud_ml.sdk.failures import AlreadyCarriedOut
from cloud_ml.sdk.messages import READ_TIMEOUT_S, Request, json_request, segment, watching

_PATH = "/api/v1/runs"
_MLFLOW = "/mlflow/api/2.0/mlflow/"
_PAGE = 200
_POINTS = 10_000


class AsyncRuns:
    """The runs of the caller's organisation. A job is its run, with the same uid.

    Every method raises ``Forbidden`` for what the caller's role may not, ``NotFound`` for what is
    absent, and ``CloudMlError`` as ``AsyncTransport.json`` does.
    """

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def search(
        self,
        experiment: str | None = None,
        filter: str = "",  # noqa: A002 - as in MLflow
        *,
        order_by: Sequence[str] = (),
        columns: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> AsyncGenerator[Run]:
        """Runs, newest first, fetched as they are iterated over.

        Args:
            experiment: Only those of this experiment, by its name.
            filter: Only those that fulfil this, in MLflow's language:
                ``metrics.loss < 0.1 AND params.optimizer = 'adam'``.
            order_by: Their order, such as ``metrics.loss ASC``.
            columns: Only these of their metrics and parameters; all by default.
            limit: At most so many.

        Raises:
            InvalidRequest: The filter or the order is wrong.
            NotFound: There is no such experiment.
        """
        query: dict[str, Any] = {
            "experiment": experiment,
            "filter": filter or None,
            "order_by": list(order_by),
            "columns": None if columns is None else ",".join(columns),
        }
        left, after = limit, None
        while left is None or left > 0:
            page_size = _PAGE if left is None else min(_PAGE, left)
            request = Request("GET", _PATH, query={**query, "after": after, "limit": page_size})
            document = await self._transport.json(request)
            page = codec.decode(RunPage, document, ignore_unknown=True)
            for run in page.items:
                yield with_numbers(run)
            if (after := page.next) is None:
                return
            if left is not None:
                left -= len(page.items)

    async def describe(
        self, uid: str, *, newer_than: int | None = None, wait_s: float = 0.0
    ) -> Run:
        """One run by its uid; with ``newer_than`` as soon as its revision is another one or
        ``wait_s`` are over.
        """
        query = {} if newer_than is None else {"wait": f"{wait_s:g}", "revision": newer_than}
        request = Request("GET", _path(uid), query=query, read_timeout_s=READ_TIMEOUT_S + wait_s)
        document = await self._transport.json(request)
        return with_numbers(codec.decode(Run, document, ignore_unknown=True))

    async def wait(self, uid: str, timeout: float | None = None) -> Run:
        """Wait until a run has ended, well or not; the caller looks at ``succeeded``.

        A server that restarts meanwhile is waited for, about two minutes.

        Args:
            uid: The run.
            timeout: Seconds; ``None`` waits for ever.

        Raises:
            WaitTimedOut: It has not ended by then.
            NotFound: There is none, or it was deleted before its end.
        """
        return await wait_for_end(
            await self.describe(uid),
            lambda last, wait_s: self.describe(uid, newer_than=last.revision, wait_s=wait_s),
            state=lambda run: f"{run.name} is still {run.state}",
            ended=_has_ended,
            timeout=timeout,
        )

    async def watch(
        self, uid: str | None = None, *, after: int | None = None
    ) -> AsyncGenerator[RunChange]:
        """Changes of one run until it is gone, or of all runs without a job, as they happen; cut
        connections are made anew.

        A run changes with its name, its state, its end, and when it is deleted or restored; what is
        logged is not told. One run is told first as it stands.

        Args:
            uid: The run; a job's, too.
            after: Begin behind this revision of a change; otherwise now.

        Raises:
            StartAgain: The server's database was restored from a backup since: search again, and
                watch anew.
        """
        path = f"{_PATH}/-/watch" if uid is None else f"{_path(uid)}/watch"

        async def open_stream(at: int | None) -> AsyncAnswer:
            return await self._transport.send(watching(path, at))

        stream = follow_stream(open_stream, RunChange, ("run", "gone"), after=after)
        async with aclosing(stream) as changes:
            async for change in changes:
                yield replace(change, run=change.run and with_numbers(change.run))
                if change.gone and uid is not None:
                    return

    async def compare(self, *runs: str, metric: str | None = None) -> RunComparison:
        """What jobs and other runs differ in, by their names or uids.

        The differences with the largest likely effect on ``metric`` come first.

        Raises:
            InvalidRequest: These are not two to ten runs, or none has the metric.
        """
        query = {"run": list(runs), "metric": metric}
        document = await self._transport.json(Request("GET", f"{_PATH}/compare", query=query))
        found = codec.decode(RunComparison, document, ignore_unknown=True)
        return comparison_with_numbers(found)

    async def delete(self, uid: str) -> Run:
        """Remove a run without a job, with its metrics.

        Raises:
            Conflict: It is a job.
        """
        document = await self._transport.json(json_request("DELETE", _path(uid)))
        return with_numbers(codec.decode(Run, document, ignore_unknown=True))

    async def experiments(self) -> Sequence[RunExperiment]:
        """The experiments, newest first."""
        return await AsyncExperiments(self._transport).list()

    async def create(
        self,
        name: str,
        experiment: RunExperiment | None = None,
        *,
        start: int | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> str:
        """Make a run without a job, which goes on until ``finish``. Returns its uid.

        Args:
            name: Its name. Several runs may have one name.
            experiment: Its experiment; that of runs that name none by default.
            start: When it began, in milliseconds since 1970; now by default.
            tags: Its tags, at most 100.

        Raises:
            QuotaExceeded: There are as many runs as there may be.
            AlreadyCarriedOut: The answer was lost, and the run is made.
        """
        document = {
            "run_name": name,
            "experiment_id": "0" if experiment is None else experiment.id,
            "start_time": start or 0,
            "tags": _pairs(tags or {}),
        }
        made = await self._tell("runs/create", document)
        return str(made["run"]["info"]["run_id"])

    async def create_experiment(self, name: str, tags: Mapping[str, str] | None = None) -> None:
        """Make an experiment.

        Raises:
            AlreadyExists: One has the name, maybe a deleted one.
        """
        await self._tell("experiments/create", {"name": name, "tags": _pairs(tags or {})})

    async def ensure_experiment(self, name: str) -> RunExperiment:
        """The experiment of a name, which is made if there is none.

        Raises:
            AlreadyExists: It was deleted, and can be restored with MLflow's client.
        """
        path = f"{_MLFLOW}experiments/get-by-name"
        with contextlib.suppress(AlreadyExists):
            try:
                return await self._find_experiment(path, name)
            except NotFound:
                await self.create_experiment(name)
        return await self._find_experiment(path, name)

    async def _find_experiment(self, path: str, name: str) -> RunExperiment:
        request = Request("GET", path, query={"experiment_name": name})
        return experiment_from_mlflow((await self._transport.json(request))["experiment"])

    async def log(
        self,
        uid: str,
        *,
        metrics: Sequence[LoggedValue] = (),
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Add at most 1000 values, 100 parameters and 100 tags to a run: all of them, or nothing.

        What is sent again is left out, so this may be repeated.

        Raises:
            InvalidRequest: Something is wrong, or a parameter has another value already.
        """
        values = [
            {"key": one.name, "value": to_wire(one.value), "step": one.step, "timestamp": one.at}
            for one in metrics
        ]
        document = {"run_id": uid, "metrics": values, "params": _pairs(params or {})}
        with contextlib.suppress(AlreadyCarriedOut):
            await self._tell("runs/log-batch", {**document, "tags": _pairs(tags or {})})

    async def log_datasets(
        self, uid: str, datasets: Sequence[tuple[Mapping[str, str], Mapping[str, str]]]
    ) -> None:
        """Note at most 100 data sets that a run has read. What is there already stays once.

        Args:
            uid: The run.
            datasets: For each its texts (``name``, and maybe ``digest``, ``source_type``, ``source``,
                ``schema`` and ``profile``) and its tags, as MLflow has them.

        Raises:
            InvalidRequest: Something is wrong.
        """
        entries = [{"dataset": dict(texts), "tags": _pairs(tags)} for texts, tags in datasets]
        with contextlib.suppress(AlreadyCarriedOut):
            await self._tell("runs/log-inputs", {"run_id": uid, "datasets": entries})

    async def datasets(self, uid: str) -> list[tuple[dict[str, str], dict[str, str]]]:
        """The data sets that a run has read: the texts and the tags of each."""
        request = Request("GET", f"{_MLFLOW}runs/get", query={"run_id": uid})
        run = (await self._transport.json(request))["run"]
        return [
            (entry["dataset"], {tag["key"]: tag["value"] for tag in entry.get("tags", ())})
            for entry in run.get("inputs", {}).get("dataset_inputs", ())
        ]

    async def finish(self, uid: str, state: str = "FINISHED", end: int | None = None) -> None:
        """End a run without a job: ``FINISHED``, ``FAILED`` or ``KILLED``, now or at a time in
        milliseconds since 1970.
        """
        at = round(time.time() * 1000) if end is None else end
        with contextlib.suppress(AlreadyCarriedOut):
            await self._tell("runs/update", {"run_id": uid, "status": state, "end_time": at})

    async def _tell(self, path: str, document: Mapping[str, Any]) -> Any:
        return await self._transport.json(json_request("POST", _MLFLOW + path, document, once=True))

    async def series(self, uid: str) -> list[MetricSeries]:
        """The metrics of a run: how many points each has, its extremes and its last value."""
        return (await self.metrics(uid)).items

    async def summaries(self, uid: str) -> list[SummaryTag]:
        """The histograms, images, audio and texts in a run's event files: tag, kind, how many, and
        the last step.
        """
        return (await self.metrics(uid)).summaries

    async def metrics(self, uid: str) -> JobSeries:
        """What ``series`` and ``summaries`` answer, in one request."""
        document = await self._transport.json(Request("GET", f"{_path(uid)}/series"))
        found = codec.decode(JobSeries, document, ignore_unknown=True)
        return replace(found, items=[series_with_numbers(one) for one in found.items])

    async def all_points(
        self, uid: str, metric: str, *, task: str | None = None, source: str | None = None
    ) -> AsyncGenerator[MetricPoint]:
        """All points of a metric as they came, fetched as they are iterated over.

        Args:
            uid: The run.
            metric: The metric.
            task: Whose; that of the first task by default.
            source: ``report``, ``event_file`` or ``log``; the first of them by default.
        """
        path = f"{_path(uid)}/series/{segment(metric)}"
        after: str | None = "0.0"
        while after is not None:
            query = {"after": after, "points": _POINTS, "task": task, "source": source}
            document = await self._transport.json(Request("GET", path, query=query))
            for point in read_points(document):
                yield point
            after = document.get("next")

    async def points(
        self,
        uid: str,
        metric: str,
        *,
        from_step: int | None = None,
        to_step: int | None = None,
        most: int = 1000,
    ) -> list[MetricPoint]:
        """Points of a metric in the order of their steps. Peaks stay where there are more than
        ``most``.
        """
        query = {"from": from_step, "to": to_step, "points": most}
        path = f"{_path(uid)}/series/{segment(metric)}"
        document = await self._transport.json(Request("GET", path, query=query))
        return read_points(document)


def _has_ended(run: Run) -> bool:
    """Whether a run has ended.

    Raises:
        NotFound: It was deleted before: nobody ends it any more.
    """
    if run.deleted and not run.finished:
        raise NotFound(
            f"run {run.name} was deleted while it was {run.state}", field="run", value=run.uid
        )
    return run.finished


def _path(uid: str) -> str:
    return f"{_PATH}/{segment(uid)}"


def _pairs(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in values.items()]
