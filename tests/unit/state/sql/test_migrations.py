"""The steps lead where the tables are."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.metrics.series import MetricLimits
from cloud_ml.domain.metrics.summary_tags import SummaryTag
from cloud_ml.domain.records import ParentRef
from cloud_ml.domain.services.kind import MODEL_SERVICE, REPLICA
from cloud_ml.domain.studies.spec import STUDY, StudyStatus
from cloud_ml.domain.tracking.runs import Experiment, RunState
from cloud_ml.errors import Conflict
from cloud_ml.state.matching import Match
from cloud_ml.state.metrics import FilePosition, ReportFile
from cloud_ml.state.sql import counters, migrations
from cloud_ml.state.sql.store import SqlStateStore
from cloud_ml.state.sql.tables import metadata
from cloud_ml.state.sql.verify import verify
from cloud_ml.state.tracking import RunSearch
from support.old_schema import step


def test_the_steps_make_the_tables_we_use(store: SqlStateStore) -> None:
    with store._database.writer.connect() as connection:
        context = MigrationContext.configure(
            connection,
            opts={"compare_server_default": True, "version_table": migrations.VERSION_TABLE},
        )
        assert compare_metadata(context, metadata) == []
        assert migrations.version_of(connection) == migrations.HEAD


def test_head_is_the_last_step_and_steps_are_in_the_order_of_their_names() -> None:
    config = Config()
    config.set_main_option("script_location", "cloud_ml.state.sql:migrations")
    script = ScriptDirectory.from_config(config)
    assert script.get_heads() == [migrations.HEAD]
    steps = [step.revision for step in script.walk_revisions()]
    assert steps == sorted(steps, reverse=True)


def test_a_current_database_is_left_alone(store: SqlStateStore) -> None:
    with store._database.writer.connect() as connection:
        before = connection.exec_driver_sql("PRAGMA schema_version").scalar()
    migrations.ensure_current(store._database.writer, name="it")
    with store._database.writer.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA schema_version").scalar() == before


def test_records_of_the_first_tables_are_found_afterwards(url: str, path: Path) -> None:
    step("0001", url)
    with closing(sqlite3.connect(path)) as connection, connection:
        job = {
            "submitted": {"job_name": "old", "framework": "tensorflow", "labels": {"team": "a b"}},
            "roles": [],
        }
        rows = [
            (
                5,
                "u5",
                "train_job",
                "old",
                "ann",
                "2026-01-31T12:00:05.000000Z",
                json.dumps(job),
                '{"runtime": "x 1"}',
            ),
            (
                7,
                "u7",
                "train_job",
                "new",
                "bob",
                "2026-01-31T12:00:02.000000Z",
                '{"submitted": {}}',
                "{}",
            ),
            (9, "u9", "wish", "it", "ann", "2026-01-31T12:00:09.000000Z", "{}", "{}"),
        ]
        connection.executemany(
            "INSERT INTO records (number, uid, kind, name, owner, created_at, spec, status, org, "
            "index_value, generation, revision, updated_at, title) VALUES (?, ?, ?, ?, ?, ?, ?, ?, "
            "'red', 'Failed', 1, ?1, ?6, '')",
            rows,
        )
        connection.execute(
            "INSERT INTO deletions VALUES (3, 'wish', 'u3', '2026-01-31T12:00:00.000000Z')"
        )
    store = SqlStateStore.open(url)
    try:

        def found(**match: Any) -> list[str]:
            return [
                line.key.name
                for line in store.list(TRAIN_JOB, org="red", match=Match(**match)).items
            ]

        assert found(owner="ann") == ["old"]
        assert found(tags=("framework=tensorflow", "framework=x", "label:team=a b")) == ["old"]
        assert found(created_from=datetime(2026, 1, 31, 12, 0, 4, tzinfo=UTC)) == ["old"]
        assert found(created_before=datetime(2026, 1, 31, 12, 0, 4, tzinfo=UTC)) == ["new"]
        assert next((change.uid, change.gone) for change in store.changes(0)) == ("u3", True)
        with store._database.writer.connect() as connection:
            assert counters.largest_step_back(connection) == timedelta(seconds=3, microseconds=1)
    finally:
        store.close()


def test_replicas_of_the_fifth_step_get_their_service_as_parent(url: str, path: Path) -> None:
    step("0005", url)
    with closing(sqlite3.connect(path)) as connection, connection:
        for number, kind, uid, name in (
            (1, "model_service", "s1", "m/v1"),
            (2, "replica", "r2", "s1-1"),
            (3, "replica", "r3", "gone-1"),
            (4, "train_job", "j4", "job"),
        ):
            connection.execute(
                "INSERT INTO records (number, uid, kind, name, owner, created_at, spec, status, "
                "org, index_value, generation, revision, updated_at, title) VALUES (?1, ?2, ?3, "
                "?4, 'ann', ?5, '{}', '{}', 'red', 'Running', 1, ?1, ?5, '')",
                (number, uid, kind, name, "2026-01-31T12:00:00.000000Z"),
            )
        connection.executemany(
            "INSERT INTO record_tags VALUES (?, ?, ?, 'red')",
            [
                (2, "label:cloudml-service=s1", "replica"),
                (2, "owner=ann", "replica"),
                (3, "label:cloudml-service=gone", "replica"),
                (4, "label:team=s1", "train_job"),
            ],
        )
        connection.execute("UPDATE counters SET revision = 4")
    store = SqlStateStore.open(url)
    try:
        page = store.list(REPLICA, match=Match(parent="s1"))
        assert [line.key.uid for line in page.items] == ["r2"]
        parents = {change.uid: change.parent for change in store.changes(0)}
        service = ParentRef("model_service", "s1")
        assert parents == {"s1": None, "r2": service, "r3": None, "j4": None}
        with pytest.raises(Conflict):
            store.delete(MODEL_SERVICE, "s1", fence=None)
    finally:
        store.close()


def test_metrics_of_the_seventh_step_go_on_as_reports(url: str, path: Path) -> None:
    step("0007", url)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "INSERT INTO records (number, uid, kind, name, owner, created_at, spec, status, "
            "org, index_value, generation, revision, updated_at, title) VALUES (5, 'u5', "
            "'train_job', 'job', 'ann', ?1, '{}', '{}', 'red', 'Running', 1, 1, ?1, '')",
            ("2026-01-31T12:00:00.000000Z",),
        )
        connection.execute("INSERT INTO metric_files VALUES (5, 1, 'master-0', '1:2', 77, 0)")
        connection.execute(
            "INSERT INTO series (run, task, name, attempt, restart, count, last_step, last_at, nan,"
            " earlier, chunks) VALUES (5, 'master-0', 'loss', 1, 0, 3, 2, 0, 0, 0, 1)"
        )
    with closing(SqlStateStore.open(url)) as store:
        assert store.metrics.positions("u5") == {ReportFile(1, "master-0"): FilePosition("1:2", 77)}
        (series,) = store.metrics.series("u5")
        assert (series.name, series.count, series.source) == ("loss", 3, "report")
        (run,) = store.tracking.search(RunSearch("red", ["0"])).items
        assert (run.uid, run.name, run.is_job, run.state) == ("u5", "job", True, RunState.RUNNING)
        assert run.start == 1769860800000


def test_jobs_of_the_twelfth_step_get_tags(url: str, path: Path) -> None:
    step("0012", url)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "INSERT INTO records (number, uid, kind, name, owner, created_at, spec, status, "
            "org, index_value, generation, revision, updated_at, title) VALUES (5, 'u5', "
            "'train_job', 'job', 'ann', ?1, '{}', '{}', 'red', 'Running', 1, 1, ?1, '')",
            ("2026-01-31T12:00:00.000000Z",),
        )
        connection.execute(
            "INSERT INTO metric_files VALUES (5, 1, 'master-0', 'event_file', 'a', '1:2', 77, 0, '')"
        )
    with closing(SqlStateStore.open(url)) as store:
        assert not store.metrics.tags("u5")
        (file, before), *_ = store.metrics.positions("u5").items()
        tag, after = SummaryTag("weights", "histogram", 3, 2, 1), FilePosition("1:2", 99)
        store.metrics.append(
            "u5", file, [], before=before, after=after, limits=MetricLimits(), tags=[tag]
        )
        assert store.metrics.tags("u5") == [tag]


def test_an_experiment_of_the_thirteenth_step_is_followed_from_its_next_change(
    url: str, path: Path
) -> None:
    step("0013", url)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "INSERT INTO experiments VALUES ('red', '1', 'digits', 5, 6, 1, '{\"a\": \"b\"}')"
        )
        connection.execute("UPDATE counters SET revision = 6")
    with closing(SqlStateStore.open(url)) as store:
        old = Experiment("1", "red", "digits", 5, 6, deleted=True, tags={"a": "b"})
        assert store.tracking.experiments("red") == [old]
        assert store.tracking.experiment_changes(0, limit=9) == []
        changed = store.tracking.change_experiment(
            "red", "1", lambda before: replace(before, deleted=False), once=None
        )
        assert changed == replace(old, deleted=False, revision=7)
        assert store.tracking.experiment_changes(6, limit=9) == [changed]


def test_trials_of_the_tenth_step_are_items_of_their_study(url: str, path: Path) -> None:
    step("0010", url)
    spec = {
        "job": {"job_name": "rates", "module_name": "local", "trainer_uri": "local"},
        "space": [], "metric": "loss", "goal": "min", "algorithm": "random", "max_trials": 5,
        "parallel": 1, "max_failed": 0, "seed": None, "local": True,
    }  # fmt: skip
    trials = [
        {"number": 0, "parameters": {"lr": 0.5}, "state": "Completed", "value": 0.25, "key": "a",
         "points": [{"step": 1, "value": 0.5, "at": 7}, {"step": 2, "value": 0.25, "at": 8}]},
        {"number": 1, "parameters": {"lr": "café"}},
    ]  # fmt: skip
    with closing(sqlite3.connect(path)) as connection, connection:
        for number, name, text in (
            (5, "rates", json.dumps({"phase": "Running", "trials": trials})),
            (6, "empty", "{}"),
        ):
            connection.execute(
                "INSERT INTO records (number, uid, kind, name, owner, created_at, spec, status, "
                "org, index_value, generation, revision, updated_at, title) VALUES (?1, 'u' || ?1, "
                "'study', ?2, 'ann', ?3, ?4, ?5, 'red', 'Running', 1, ?1, ?3, '')",
                (number, name, "2026-01-31T12:00:00.000000Z", json.dumps(spec), text),
            )
        connection.execute("UPDATE counters SET revision = 6")
    with closing(SqlStateStore.open(url)) as store:
        record = store.find(STUDY, "red", "rates")
        assert record is not None
        first, second = record.status.trials
        assert [(one.step, one.value, one.at) for one in first.points] == [
            (1, 0.5, 7),
            (2, 0.25, 8),
        ]
        assert (first.value, first.key, second.parameters) == (0.25, "a", {"lr": "café"})
        empty = store.get(STUDY, "u6")
        assert empty is not None
        assert empty.status == StudyStatus()
        list(verify(url, {STUDY.name: STUDY}))
