"""The stages of an attempt as bars below each other. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from cloud_ml.cli.display import figures
from cloud_ml.cli.display.terminal import pad
from cloud_ml.models.jobs.job import Job

BAR = 36
_LED_TO = {
    "claimed": "hand over",
    "fetched": "fetch",
    "resolved": "resolve",
    "installed": "install",
    "environment": "environment",
    "imported": "imported ahead",
    "started": "start",
    "output": "to first output",
}
"""What was going on before an attempt reached a stage."""
_AFTER = {
    "": "hand over",
    "claimed": "environment",
    "fetched": "resolve",
    "resolved": "install",
    "installed": "environment",
    "environment": "start",
    "imported": "start",
    "started": "run",
    "output": "run",
    "ended": "save outputs",
}
"""What goes on behind the last stage that was reached, and what an end has cut off."""


@dataclass(frozen=True)
class Span:
    """Something that took from ``begin`` to ``end``; ``open`` if it is still going on."""

    name: str
    begin: datetime
    end: datetime
    open: bool = False

    @property
    def seconds(self) -> float:
        """How long it took; clocks that disagree do not make it negative."""
        return max(0.0, (self.end - self.begin).total_seconds())


def spans(job: Job, stages: Mapping[str, datetime], now: datetime) -> list[Span]:
    """What the present attempt spent its time with, in order.

    Args:
        job: The job.
        stages: What the engine knows that the job does not say yet.
        now: The time.
    """
    if job.queued_at is None:
        return []
    if job.starting_at is None:
        waits = "queue" if job.phase == "Queued" else "pause"
        begin = job.queued_at if job.phase == "Queued" else job.updated_at
        return [Span(waits, begin, job.finished_at or now, open=not job.finished)]
    found = [Span("queue", job.queued_at, job.starting_at)] if job.attempt == 1 else []
    reached = sorted({**job.stages, **stages}.items(), key=lambda stage: stage[1])
    before, last = job.starting_at, ""
    for name, at in reached:
        found.append(
            Span(_AFTER.get(last, last) if name == "ended" else _LED_TO.get(name, name), before, at)
        )
        before, last = at, name
    if not job.finished:
        found.append(Span(_AFTER.get(last, last), before, now, open=True))
    elif last != "ended" and job.finished_at is not None:
        found.append(Span(_AFTER.get(last, last), before, job.finished_at))
    return found


def timeline(found: Sequence[Span], width: int = BAR) -> Iterator[str]:
    """One line for each span: its name, when it began, how long it took, and a bar at its place
    in the whole.
    """
    first, last = found[0].begin, max(span.end for span in found)
    whole = max((last - first).total_seconds(), 1e-6)
    names = max(len(span.name) for span in found)
    for span in found:
        at = min(width - 1, int(max(0.0, (span.begin - first).total_seconds()) / whole * width))
        long = max(1, min(width - at, round(span.seconds / whole * width)))
        bar = " " * at + "━" * long + ("…" if span.open else "")
        took = figures.span(span.seconds)
        yield f"{pad(span.name, names)}  {span.begin.astimezone():%H:%M:%S}  {took:>9}  {bar}".rstrip()
