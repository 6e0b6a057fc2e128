"""Stores of MLflow that somebody else has written."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cloud_ml.cli.mlflow_stores import database_models
from cloud_ml.cli.mlflow_stores.database_store import DatabaseStore
from cloud_ml.cli.mlflow_stores.folder_store import FolderStore
from cloud_ml.cli.mlflow_stores.safe_files import META
from cloud_ml.cli.mlflow_stores.stored_models import LOGGED_STATES, STAGES, owner_and_path
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
    "cli.mlflow_stores.folder_models",
    "cli.mlflow_stores.safe_files",
    "cli.mlflow_stores.stored_models",
    seeds=[_META + b"\0" + _VALUES, b"status: 99\nrun_id: 1\0x", b"\0inf inf inf\n", b"- a\0"],
    words=[b"\0", b"lifecycle_stage: deleted\n", b"start_time: ", b"status: ", b" nan ", b"-inf", b"\n"],
)  # fmt: skip
def run_folder_store(data: bytes) -> None:
    """A folder is read as runs with values, or refused with the file that is wrong."""
    meta, _, values = data.partition(b"\0")
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "0", "a")
        for kind in ("metrics", "params", "tags"):
            (run / kind).mkdir(parents=True)
            (run / kind / "x").write_bytes(values)
        (run / META).write_bytes(meta)
        for each in (
            run.parent / "models" / "m-1",
            run.parents[1] / "models" / "iris" / "version-1",
        ):
            (each / "tags").mkdir(parents=True)
            (each / META).write_bytes(meta)
            (each.parent / META).write_bytes(meta)
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


@target(
    "cli.mlflow_stores.database_models",
    seeds=[b"iris\0001\0models:/m-1\0Staging", b"\0", b"2\0x"],
    words=[b"\0", b"Deleted_Internal", b"99999999999"],
)
def run_database_models(data: bytes) -> None:
    """Rows of any values are read as models with numbers and known states."""
    parts = data.decode("utf-8", "replace").split("\0")
    values = [
        int(one) if one.isascii() and one.isdigit() and len(one) < 15 else one for one in parts
    ]

    def rows(query: str, *_: Any) -> Iterator[tuple[Any, ...]]:
        columns = query.partition(" FROM ")[0].count(",") + 1
        yield tuple(values[number % len(values)] or None for number in range(columns))

    for model in database_models.read_registered_models(rows):
        assert all(number > 0 for number in model.aliases.values())
        for version in model.versions:
            assert version.stage in STAGES
            assert 0 < version.number < 10**9
    for logged in database_models.read_logged_models(rows, "0", lambda _: None):
        assert logged.state in LOGGED_STATES


def _read(store: RunStore) -> None:
    with contextlib.suppress(InvalidRequest):
        for model in store.registered_models():
            for version in model.versions:
                assert version.stage in STAGES
                owner, path = owner_and_path(version.source)
                assert "/" not in owner
                assert isinstance(path, str)
        for experiment in store.experiments():
            for logged in store.logged_models(experiment):
                assert logged.state in LOGGED_STATES
            for run in store.runs(experiment):
                assert run.state in STATES
                assert isinstance(run.start, int)
                store.params(run)
                store.tags(run)
                for metric in store.metrics(run):
                    for value in store.values(run, metric):
                        assert isinstance(value.value, float)
