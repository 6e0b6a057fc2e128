"""Experiments: groups of runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from cloud_ml.aio.answers import AsyncAnswer
from cloud_ml.aio.transport import AsyncTransport
from cloud_ml.aio.waiting import wait_for_end
from cloud_ml.aio.watching import follow_stream
from cloud_ml.errors import NotFound
from cloud_ml.models import codec
from cloud_ml.models.tracking.run import (
    ExperimentChange,
    ExperimentPage,
    RunExperiment,
    RunPage,
    experiment_from_mlflow,
)
from cloud_ml.sdk.messages import READ_TIMEOUT_S, Request, segment, watching

_PATH = "/api/v1/experiments"
_BY_NAME = "/mlflow/api/2.0/mlflow/experiments/get-by-name"
_NAMED = 5


class AsyncExperiments:
    """The experiments of the caller's organisation. Those that group no run yet are there, too.

    Every method raises ``NotFound`` for what is absent, and ``CloudMlError`` as
    ``AsyncTransport.json`` does.
    """

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> Sequence[RunExperiment]:
        """The experiments that are not deleted, newest first."""
        found: list[RunExperiment] = []
        query: dict[str, str] = {}
        while True:
            document = await self._transport.json(Request("GET", _PATH, query=query))
            page = codec.decode(ExperimentPage, document, ignore_unknown=True)
            found += page.items
            if page.next is None:
                return found
            query["after"] = page.next

    async def find(self, name: str) -> RunExperiment:
        """The experiment of that name, a deleted one, too.

        Raises:
            NotFound: There is none.
        """
        try:
            found = await self._transport.json(
                Request("GET", _BY_NAME, query={"experiment_name": name})
            )
        except NotFound as error:
            known = [one.name for one in await self.list()]
            shown = ", ".join(known[:_NAMED]) + (", …" if len(known) > _NAMED else "")
            raise NotFound(
                f"there is no experiment {name[:200]!r}",
                field="experiment", value=name[:200], allowed=f"one of {shown}",
            ) from error  # fmt: skip
        return await self.describe(experiment_from_mlflow(found["experiment"]).id)

    async def describe(
        self, id_: str, *, newer_than: int | None = None, wait_s: float = 0.0
    ) -> RunExperiment:
        """One experiment by its id; with ``newer_than`` as soon as its revision is another one or
        ``wait_s`` are over.
        """
        query = {} if newer_than is None else {"wait": f"{wait_s:g}", "revision": newer_than}
        request = Request("GET", _path(id_), query=query, read_timeout_s=READ_TIMEOUT_S + wait_s)
        document = await self._transport.json(request)
        return codec.decode(RunExperiment, document, ignore_unknown=True)

    async def active_runs(self, id_: str, *, wait_s: float = 0.0) -> RunPage:
        """The newest runs of an experiment that have not ended, at most ten, without what they
        logged; as soon as there is none, or ``wait_s`` are over. ``next`` is set if there are more.
        """
        query = {"wait": f"{wait_s:g}"} if wait_s else {}
        request = Request(
            "GET", f"{_path(id_)}/active", query=query, read_timeout_s=READ_TIMEOUT_S + wait_s
        )
        document = await self._transport.json(request)
        return codec.decode(RunPage, document, ignore_unknown=True)

    async def wait(self, name: str, timeout: float | None = None) -> RunExperiment:
        """Wait until no run of an experiment is active: all have ended, well or not.

        A run that begins meanwhile is waited for, too. A run that waits for its start is active; so
        is a job that is saved or paused. Between two runs that follow each other, none may be. A
        server that restarts meanwhile is waited for, about two minutes.

        Args:
            name: The name of the experiment.
            timeout: Seconds; ``None`` waits for ever.

        Raises:
            WaitTimedOut: Runs are active; it names some.
            NotFound: There is no such experiment.
        """
        found = await self.find(name)
        await wait_for_end(
            await self.active_runs(found.id),
            lambda _, wait_s: self.active_runs(found.id, wait_s=wait_s),
            state=lambda page: f"{name} still has active runs: {name_runs(page)}",
            ended=lambda page: not page.items,
            timeout=timeout,
        )
        return await self.describe(found.id)

    async def watch(
        self, name: str | None = None, *, after: int | None = None
    ) -> AsyncGenerator[ExperimentChange]:
        """Changes of one experiment, or of all, as they happen; cut connections are made anew.

        An experiment changes when it is made, with its name and its tags, and when it is deleted or
        restored. What its runs do is in ``runs.watch`` and in the watch of all jobs. One experiment
        is told first as it stands.

        Args:
            name: The experiment. It is watched on if it gets another name.
            after: Begin behind this revision of a change; otherwise now.

        Raises:
            NotFound: There is no such experiment.
            StartAgain: The server's database was restored from a backup since: list again, and
                watch anew.
        """
        path = f"{_PATH}/-/watch"
        if name is not None:
            path = f"{_path((await self.find(name)).id)}/watch"

        async def open_stream(at: int | None) -> AsyncAnswer:
            return await self._transport.send(watching(path, at))

        stream = follow_stream(open_stream, ExperimentChange, ("experiment",), after=after)
        async with aclosing(stream) as changes:
            async for change in changes:
                yield change


def name_runs(page: RunPage) -> str:
    """The runs of a page with their states, in a sentence."""
    named = ", ".join(f"{run.name} ({run.state})" for run in page.items[:_NAMED])
    return named + (", …" if len(page.items) > _NAMED or page.next is not None else "")


def _path(id_: str) -> str:
    return f"{_PATH}/{segment(id_)}"
