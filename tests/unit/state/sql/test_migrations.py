"""The steps lead where the tables are."""

from __future__ import annotations

from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from cloud_ml.state.sql import migrations
from cloud_ml.state.sql.store import SqlStateStore
from cloud_ml.state.sql.tables import metadata


def test_the_steps_make_the_tables_we_use(store: SqlStateStore) -> None:
    with store._database.writer.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_server_default": True, "version_table": migrations.VERSION_TABLE}
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
