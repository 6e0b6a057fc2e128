"""Alembic runs this file; the connection and its transaction are the caller's."""

from __future__ import annotations

from alembic import context

from cloud_ml.state.sql.migrations import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    version_table=VERSION_TABLE,
    transactional_ddl=True,
)
context.run_migrations()
