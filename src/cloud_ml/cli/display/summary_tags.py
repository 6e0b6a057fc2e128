"""Tags of event files with histograms, images, audio and texts, as commands show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cloud_ml.cli.display.output import echo_table, local_time, note

if TYPE_CHECKING:
    from cloud_ml.models.jobs.job import Job
    from cloud_ml.models.tracking.metrics import SummaryTag

_SEVERAL = {"histogram": "histograms", "image": "images", "text": "texts", "other": "others"}
_HEADER = ("TAG", "KIND", "SUMMARIES", "STEP", "TIME")


def show_summaries(found: Sequence[SummaryTag], job: Job) -> None:
    """A table of the tags of a job, and how to look at what they have."""
    rows = [
        (one.name, one.kind, str(one.count), str(one.last_step), local_time(one.last_at))
        for one in found
    ]
    echo_table(_HEADER, rows)
    note(f"Look at them with a TensorBoard: {_command(job)}")


def summary_words(found: Sequence[SummaryTag], job: Job, most: int) -> list[str]:
    """At most so many tags in a few words each, such as ``weights (10 histograms, step 9)``, and how
    to see more.
    """
    words = [f"{one.name} ({_count_words(one)}, step {one.last_step})" for one in found[:most]]
    more = len(found) - len(words)
    if more > 0:
        words.append(f"{more} more: cloudml runs metrics {job.name}")
    elif words:
        words.append(f"look at them: {_command(job)}")
    return words


def _command(job: Job) -> str:
    """What shows the event files of a job. Its working folder is seen by no TensorBoard before it
    has ended.
    """
    name = job.name
    if job.spec.get("tensorboard_logdir"):  # it was created with the job
        return f"cloudml tensorboard open {name}"
    if job.spec.get("output_path") or job.outputs is not None:
        return f"cloudml tensorboard create -n {name} -j {name}"
    return f"cloudml jobs cp -r {name}: {name} && tensorboard --logdir {name}"


def _count_words(tag: SummaryTag) -> str:
    return f"{tag.count} {tag.kind if tag.count == 1 else _SEVERAL.get(tag.kind, tag.kind)}"
