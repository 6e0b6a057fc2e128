"""Where the value of a trial comes from: what its job reported, else its event files and its log."""

from __future__ import annotations

import pytest

from cloud_ml.domain.jobs.kind import TrainJobRecord
from cloud_ml.domain.metrics.reports import Value
from cloud_ml.domain.metrics.series import EVENT_FILES, LOG, REPORTS, MetricLimits
from cloud_ml.state.metrics import NOT_READ, FilePosition, ReportFile
from support.platform import Served

pytestmark = pytest.mark.anyio


def _write(
    served: Served, job: TrainJobRecord, name: str, value: float, *, at: int, source: str
) -> None:
    file = ReportFile(1, "master-0", source, f"{source}/{name}")
    after = FilePosition("file", 10)
    values = [Value(name, at, 1000 * at, value)]
    served.store.metrics.append(
        job.key.uid, file, values, before=NOT_READ, after=after, limits=MetricLimits()
    )


async def test_a_tag_is_found_in_every_folder_and_the_newest_value_counts(served: Served) -> None:
    await served.submitted(job_name="writes")
    job, objectives = served.platform.jobs.find("default", "writes"), served.platform.objectives
    assert objectives.last(job, "loss") is None
    assert objectives.reported(job) == {}
    _write(served, job, "train/loss", 3.0, at=1, source=EVENT_FILES)
    _write(served, job, "validation/loss", 2.0, at=2, source=EVENT_FILES)
    assert objectives.last(job, "loss") == (2.0, 2)
    assert objectives.last(job, "train/loss") == (3.0, 1)
    assert objectives.last(job, "oss") is None
    assert objectives.reported(job) == {"train/loss": EVENT_FILES, "validation/loss": EVENT_FILES}


async def test_what_a_job_reports_itself_counts_first(served: Served) -> None:
    await served.submitted(job_name="both")
    job, objectives = served.platform.jobs.find("default", "both"), served.platform.objectives
    _write(served, job, "loss", 3.0, at=9, source=EVENT_FILES)
    _write(served, job, "loss", 2.0, at=2, source=LOG)
    assert objectives.last(job, "loss") == (2.0, 2)
    _write(served, job, "loss", 1.0, at=3, source=REPORTS)
    assert objectives.last(job, "loss") == (1.0, 3)


async def test_a_log_that_is_read_late_does_not_replace_what_a_job_reports(served: Served) -> None:
    await served.submitted(job_name="late")
    job, platform = served.platform.jobs.find("default", "late"), served.platform
    _write(served, job, "loss", 1.0, at=3, source=REPORTS)
    _write(served, job, "loss", 2.0, at=9, source=LOG)
    _write(served, job, "loss", 3.0, at=12, source=EVENT_FILES)
    uid = job.key.uid
    assert platform.objectives.last(job, "loss") == (1.0, 3)
    assert platform.job_metrics.columns([uid], "loss") == {uid: {"loss": 1.0}}
    assert [one.value for one in served.store.tracking.last_values([uid])[uid]] == [1.0]


async def test_lines_that_nobody_asked_to_read_count_last(served: Served) -> None:
    await served.submitted(job_name="printed", metric_patterns=["metric:loss"])
    job, objectives = served.platform.jobs.find("default", "printed"), served.platform.objectives
    _write(served, job, "loss", 9.0, at=9, source=LOG)
    assert objectives.last(job, "loss") == (9.0, 9)
    _write(served, job, "runs/loss", 2.0, at=2, source=EVENT_FILES)
    assert objectives.last(job, "loss") == (2.0, 2)
    _write(served, job, "loss", 3.0, at=3, source=EVENT_FILES)
    assert objectives.last(job, "loss") == (3.0, 3)
    _write(served, job, "loss", 1.0, at=1, source=REPORTS)
    assert objectives.last(job, "loss") == (1.0, 1)
