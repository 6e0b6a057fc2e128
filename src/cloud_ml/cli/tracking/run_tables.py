"""Runs and their points as whole tables, for files: CSV and Parquet."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from cloud_ml.cli.display.csv_tables import columns_of, csv_lines
from cloud_ml.cli.display.output import note
from cloud_ml.cli.display.parquet_file import Column, ColumnType, write_parquet
from cloud_ml.errors import InvalidRequest

if TYPE_CHECKING:
    from cloud_ml.client import CloudMlClient
    from cloud_ml.models.tracking.metrics import MetricSeries
    from cloud_ml.models.tracking.run import Run

Rows = Iterable[Sequence[Any]]
Writer = Callable[[IO[bytes], Sequence[Column], Rows], int]
_POINTS = (
    Column("metric", ColumnType.TEXT),
    Column("task", ColumnType.TEXT),
    Column("source", ColumnType.TEXT),
    Column("step", ColumnType.WHOLE_NUMBER),
    Column("at", ColumnType.TIME),
    Column("value", ColumnType.NUMBER),
)
_RUN = (
    Column("uid", ColumnType.TEXT),
    Column("name", ColumnType.TEXT),
    Column("experiment", ColumnType.TEXT),
    Column("state", ColumnType.TEXT),
    Column("created_at", ColumnType.TIME),
    Column("ended_at", ColumnType.TIME),
)


def run_table(found: Sequence[Run]) -> tuple[Sequence[Column], Rows]:
    """All that was logged to runs, with the metrics and parameters that any of them has."""
    metrics_of = columns_of("metrics", (run.metrics for run in found))
    params_of = columns_of("params", (run.params for run in found))
    columns = [
        *_RUN,
        *(Column(name, ColumnType.NUMBER) for name in metrics_of),
        *(Column(name, ColumnType.TEXT) for name in params_of),
    ]
    rows = (
        (
            run.uid,
            run.name,
            run.experiment,
            run.state,
            run.created_at,
            run.ended_at,
            *(_number_of(run, key) for key in metrics_of.values()),
            *(run.params.get(key) for key in params_of.values()),
        )
        for run in found
    )
    return columns, rows


def point_table(
    client: CloudMlClient, uid: str, series: Sequence[MetricSeries]
) -> tuple[Sequence[Column], Rows]:
    """All points of some series of a run, fetched as they are written."""
    return _POINTS, _points(client, uid, series)


def _points(
    client: CloudMlClient, uid: str, series: Sequence[MetricSeries]
) -> Iterator[Sequence[Any]]:
    for one in series:
        points = client.runs.all_points(uid, one.name, task=one.task, source=one.source)
        for point in points:
            yield one.name, one.task, one.source, point.step, point.at, float(point.value)


def write_table(form: str, file: str, columns: Sequence[Column], rows: Rows) -> None:
    """Write a table to a file, which is whole or not there.

    Raises:
        InvalidRequest: The file cannot be written.
    """
    write: Writer = write_parquet
    if form == "csv":
        write = _write_csv
    if file == "-":
        write(sys.stdout.buffer, columns, rows)
        sys.stdout.buffer.flush()
        return
    target = Path(file)
    try:
        with tempfile.NamedTemporaryFile(
            dir=target.parent, prefix=f".{target.name[:80]}.", delete=False
        ) as draft:
            try:
                count = write(draft, columns, rows)
                draft.close()
                _set_usual_mode(draft.name)
                Path(draft.name).replace(target)
            except BaseException:
                Path(draft.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        raise InvalidRequest(
            f"{file} cannot be written: {error.strerror or error}", field="file", value=file,
            allowed="a path in a folder that is there and may be written to",
        ) from error  # fmt: skip
    note(f"{count} rows are in {file}.")


def _write_csv(target: IO[bytes], columns: Sequence[Column], rows: Rows) -> int:
    count = -1
    for line in csv_lines([column.name for column in columns], rows):
        target.write(line.encode("utf-8", "replace"))
        count += 1
    return count


def _set_usual_mode(path: str) -> None:
    """Drafts are their owner's alone; the file is as others that the user makes."""
    umask = os.umask(0)
    os.umask(umask)
    Path(path).chmod(0o666 & ~umask)


def _number_of(run: Run, metric: str) -> float | None:
    return float(run.metrics[metric]) if metric in run.metrics else None
