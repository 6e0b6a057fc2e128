"""Stores of MLflow that somebody else has written."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

from cloud_ml.cli.mlflow_stores.database_store import DatabaseStore
from cloud_ml.cli.mlflow_stores.folder_store import META, FolderStore
from cloud_ml.cli.mlflow_stores.stored_runs import STATES, RunStore
from cloud_ml.errors import InvalidRequest
from fuzz.harness import target

_META = (
    b"lifecycle_stage: active\nname: digits\nrun_id: a\nrun_name: first\nstatus: 3\n"
    b"start_time: 1795812224952\nend_time: null\n"
)
_VALUES = b"1795812224985 nan 1\n1795812224988 0.25 2\n"


@target(
    "cli.mlflow_stores.folder_store",
    "cli.mlflow_stores.safe_files",
    seeds=[_META + b"\0" + _VALUES, b"status: 99\nrun_id: 1\0x", b"\0inf inf inf\n", b"- a\0"],
    words=[b"\0", b"lifecycle_stage: deleted\n", b"start_time: ", b"status: ", b" nan ", b"-inf", b"\n"],
)  # fmt: skip
def run_folder_store(data: bytes) -> None:
    """A folder is read as runs with values, or refused with the file that is wrong."""
    meta, _, values = data.partition(b"\0")
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "0", "a")
        for each in ("metrics", "params", "tags"):
            (run / each).mkdir(parents=True)
            (run / each / "x").write_bytes(values)
        (run / META).write_bytes(meta)
        (run.parent / META).write_bytes(b"name: digits\n")
        _read(FolderStore(Path(folder)))


@target(
    "cli.mlflow_stores.database_store",
    seeds=[b"", b"SQLite format 3\0" + bytes(84)],
)
def run_database_store(data: bytes) -> None:
    """A file that is no database is refused."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "mlflow.db")
        path.write_bytes(data)
        with contextlib.suppress(InvalidRequest):
            _read(DatabaseStore(path))


def _read(store: RunStore) -> None:
    with contextlib.suppress(InvalidRequest):
        for experiment in store.experiments():
            for run in store.runs(experiment):
                assert run.state in STATES
                assert isinstance(run.start, int)
                store.params(run)
                store.tags(run)
                for metric in store.metrics(run):
                    for value in store.values(run, metric):
                        assert isinstance(value.value, float)
