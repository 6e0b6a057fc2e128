"""``cloudml runs``, and the metrics of ``jobs describe``."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from cloud_ml.cli.tracking.runs import _write_points
from cloud_ml.errors import NotFound
from cloud_ml.models import codec
from cloud_ml.models.tracking.metrics import (
    JobSeries,
    MetricPoint,
    MetricSeries,
    SummaryTag,
    to_wire,
)
from cloud_ml.models.tracking.run import Run as LoggedRun
from support.fake_api import FakeApi, make_job
from support.fake_server import Reply, Seen, json_reply

if TYPE_CHECKING:
    from support.fake_server import FakeServer
    from unit.cli.conftest import Run

AT = datetime(2026, 1, 1, tzinfo=UTC)


def series(name: str, last: float = 0.25, task: str = "master-0") -> MetricSeries:
    return MetricSeries(
        name=name, task=task, count=3, first=1.0, last=to_wire(last), min=0.25, max=1.0,
        last_step=300, last_at=AT, nan=int(math.isnan(last)), earlier=2,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def job(api: FakeApi) -> None:
    api.jobs = {"a": make_job("a", phase="Running")}
    api.series = [series("accuracy"), series("loss", math.nan)]
    api.points = [
        MetricPoint(step=step, at=AT, value=to_wire(value))
        for step, value in [(1, 0.123456789), (2, math.inf), (3, math.nan)]
    ]


def test_the_metrics_of_a_run(run: Run) -> None:
    lines = run("runs", "metrics", "a").stdout.splitlines()
    header = "METRIC TASK POINTS LAST MIN MAX STEP TIME REMARKS"
    loss = "loss master-0 3 nan 0.25 1 300 2026-01-01 00:00:00 1 NaN, 2 written again later"
    assert " ".join(lines[0].split()) == header
    assert " ".join(lines[2].split()) == loss


def test_the_points_of_a_metric(run: Run, api: FakeApi) -> None:
    options = ("--from", "1", "--to", "9", "--points", "200", "--task", "master-0")
    result = run("runs", "metrics", "a", "--name", "loss", *options)
    assert [line.split()[:2] for line in result.stdout.splitlines()] == [
        ["STEP", "LOSS"],
        ["1", "0.123457"],
        ["2", "inf"],
        ["3", "nan"],
    ]
    assert api.points_query == {"from": "1", "to": "9", "points": "200", "task": "master-0"}


def test_a_range_needs_a_metric(run: Run) -> None:
    for words in (("--from", "1"), ("--to", "0"), ("--earlier",)):
        result = run("runs", "metrics", "a", *words)
        assert result.exit_code == 2
        assert "need --name" in result.stderr


def test_of_many_metrics_some_are_named_where_one_is_missing() -> None:
    there = [series(f"m{number:03d}") for number in range(300)]
    session: Any = SimpleNamespace(
        client=SimpleNamespace(runs=SimpleNamespace(series=lambda _: there))
    )
    with pytest.raises(NotFound) as refused:
        _write_points(session, "csv", "-", run=("uid", "a"), selection=("nothing", None))
    assert str(refused.value.allowed).startswith("m000, m001, ")
    assert str(refused.value.allowed).endswith("m019, and 280 more")


def test_a_run_without_metrics_says_how_to_report_some(run: Run, api: FakeApi) -> None:
    api.series = []
    output = run("runs", "metrics", "a").stderr
    assert "cloud_ml.job.report(step, loss=0.3)" in output
    assert "event files to its working folder, --output_path or" in output


def test_a_run_without_a_job_and_metrics_says_how_to_log_some(
    run: Run, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged = LoggedRun(
        uid="1" * 32, name="lap", experiment="Default", experiment_id="0", is_job=False,
        user="ann", state="FINISHED", created_at=AT,
    )  # fmt: skip

    def on_runs(seen: Seen, _uid: str = "", verb: str = "") -> Reply:
        found = JobSeries(items=[]) if verb else logged
        return json_reply(codec.encode(found))

    monkeypatch.setattr(api, "on_runs", on_runs)
    output = run("runs", "metrics", logged.uid).stderr
    assert 'mlflow.log_metric("loss", 0.3), or with CloudMlClient().run(NAME)' in output
    assert "job.report" not in output


def test_runs_with_columns(run: Run, api: FakeApi) -> None:
    header, line = run("runs", "list", "--columns", "loss,accuracy").stdout.splitlines()
    assert header.split() == ["RUN", "EXPERIMENT", "STATE", "CREATED", "LOSS", "ACCURACY"]
    assert line.split()[-2:] == ["0.5", "-"]
    assert api.runs_query == {"columns": "loss,accuracy", "limit": "51"}


@pytest.mark.parametrize("form", [(), ("-o", "json"), ("-o", "csv")])
def test_runs_that_are_not_shown_are_spoken_of(
    run: Run, api: FakeApi, form: tuple[str, ...]
) -> None:
    api.jobs = {f"a{number}": make_job(f"a{number}") for number in range(51)}
    result = run("runs", "list", *form)
    assert "a49" in result.stdout
    assert "a50" not in result.stdout
    assert result.stderr == "There are more than 50; --limit 0 shows them all.\n"
    whole = run("runs", "list", *form, "--limit", "0")
    assert ("a50" in whole.stdout, whole.stderr) == (True, "")
    assert run("runs", "list", *form, "--limit", "51").stderr == ""


def test_runs_show_some_metrics_by_themselves(run: Run) -> None:
    header, line = run("runs", "list").stdout.splitlines()
    assert (header.split()[-1], line.split()[-1]) == ("LOSS", "0.5")


def test_options_become_a_filter(run: Run, api: FakeApi) -> None:
    options = ("-s", "failed,stopped", "-n", "exp*", "--filter", "metrics.loss < 1", "-e", "digits")
    run("runs", "list", *options, "--order-by", "metrics.loss", "--limit", "3")
    status = "attributes.status IN ('FAILED', 'KILLED')"
    assert api.runs_query == {
        "filter": f"metrics.loss < 1 AND {status} AND attributes.run_name LIKE 'exp%'",
        "experiment": "digits",
        "order_by": "metrics.loss",
        "limit": "4",
    }
    for wrong in (("-s", "nothing"), ("-n", "it's")):
        assert run("runs", "list", *wrong).exit_code == 2


@pytest.mark.parametrize("words", [("jobs", "describe", "a"), ("runs", "metrics", "a")])
def test_metrics_and_summaries_are_one_request(
    run: Run, api: FakeApi, server: FakeServer, words: tuple[str, ...]
) -> None:
    api.summaries = [
        SummaryTag(name="weights", kind="histogram", count=10, last_step=9, last_at=AT)
    ]
    result = run(*words)
    assert result.exit_code == 0, result.output
    assert "accuracy" in result.stdout
    assert "weights" in result.stdout
    assert [one.path for one in server.seen if one.path.endswith("/series")] == [
        f"/api/v1/jobs/{api.jobs['a'].uid}/series"
    ]


def test_a_job_tells_its_latest_metrics(run: Run) -> None:
    shown = run("jobs", "describe", "a").stdout
    assert "accuracy 0.25 (step 300); loss nan (step 300)" in shown
