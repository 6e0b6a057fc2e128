"""Databases as older versions left them."""

from __future__ import annotations

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine


def step(revision: str, url: str) -> None:
    """Make the tables of a step of ``migrations``, or bring those of an earlier one to it."""
    engine = create_engine(url)
    config = Config()
    config.set_main_option("script_location", "cloud_ml.state.sql:migrations")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
    engine.dispose()
