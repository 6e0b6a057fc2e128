"""The tables. ``migrations/`` brings a database here; a test compares the two.

Times are RFC 3339 text in UTC with six digits, so that text order is time order on every database.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    text,
)

from cloud_ml.models.codec import format_time, parse_time


def _read(value: str | None) -> datetime | None:
    return None if value is None else parse_time(value)


class Moment(TypeDecorator[datetime]):
    """A point in time."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Any) -> str | None:
        """To text."""
        return None if value is None else format_time(value)

    def process_result_value(self, value: str | None, dialect: Any) -> datetime | None:
        """From text."""
        return _read(value)

    def result_processor(
        self, dialect: Any, coltype: object
    ) -> Callable[[str | None], datetime | None]:
        """The same without two calls in between: a page of a list has a hundred of them."""
        return _read


Number = BigInteger().with_variant(Integer(), "sqlite")
"""64 bits. SQLite's row id, which costs nothing as a primary key, must be spelled INTEGER."""

Name = Text().with_variant(Text(collation="C"), "postgresql")
"""Compared byte by byte on every database, so that names with the same beginning lie side by
side.
"""

metadata = MetaData()

counters = Table(
    "counters",
    metadata,
    Column("id", Integer, CheckConstraint("id = 1", name="one_row"), primary_key=True),
    Column("revision", Number, nullable=False),
    Column("event", Number, nullable=False),
    Column("newest_us", Number, nullable=False, server_default="0"),
    Column("back_us", Number, nullable=False, server_default="0"),
)
"""One row. Whoever writes updates it first, so that numbers grow in the order of commits.

``newest_us`` is the latest time at which a record was made (microseconds since 1970), ``back_us``
the longest way that this time ever went back from one record to a later one: see ``times``.
"""


records = Table(
    "records",
    metadata,
    # Narrow columns first: SQLite reads a row from its beginning, and a list never gets to the
    # documents.
    Column("number", Number, primary_key=True, autoincrement=False),
    Column("uid", Text, nullable=False, unique=True),
    Column("kind", Text, nullable=False),
    Column("org", Text, nullable=False),
    Column("name", Name, nullable=False),
    Column("owner", Text, nullable=False),
    Column("index_value", Text, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("revision", Number, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("updated_at", Moment, nullable=False),
    Column("delete_requested_at", Moment),
    Column("title", Text, nullable=False),
    Column("spec", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("parent_kind", Text),
    Column("parent_uid", Text),
    Index("records_by_name", "kind", "org", "name", unique=True),
    # For the feed of changes.
    Index("records_by_revision", "revision", unique=True),
    # One index for each combination of list conditions, with the number last: a page is one walk
    # along it (see ``listing``).
    Index("records_by_kind", "kind", "number"),
    Index("records_by_org", "kind", "org", "number"),
    Index("records_by_index", "kind", "index_value", "number"),
    Index("records_by_org_and_index", "kind", "org", "index_value", "number"),
    Index("records_by_time", "created_at", "number"),
    # Only of those being deleted. The migration says so: said here, it would import every dialect
    # at each start.
    Index("records_deleting", "kind", "number"),
    # Only of those that have a parent.
    Index("records_by_parent", "parent_uid"),
)
"""The living. ``number`` is the revision at which the record was made."""

record_tags = Table(
    "record_tags",
    metadata,
    Column(
        "number",
        Number,
        ForeignKey("records.number", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("tag", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("org", Text, nullable=False),
    Index("record_tags_by_tag", "kind", "tag", "org", "number"),
    sqlite_with_rowid=False,
)
"""Words under which records are found: owner, parent, framework, labels."""

status_items = Table(
    "status_items",
    metadata,
    Column(
        "record",
        Number,
        ForeignKey("records.number", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("list", Number, primary_key=True, autoincrement=False),
    Column("position", Number, primary_key=True, autoincrement=False),
    Column("revision", Number, nullable=False),
    Column("document", Text, nullable=False),
    Index("status_items_by_revision", "record", "revision"),
    sqlite_with_rowid=False,
)
"""The long lists of statuses, such as the trials of a study: see ``ItemList``. ``list`` is -1 for
items, and the position of an item for the elements of its own list. ``revision`` is that of the
record at which the row was written, so whoever knows an earlier one reads only what is newer.
"""

deletions = Table(
    "deletions",
    metadata,
    Column("revision", Number, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    Column("uid", Text, nullable=False),
    Column("deleted_at", Moment, nullable=False, index=True),
    Column("org", Text, nullable=False, server_default=text("''")),
    Column("name", Text, nullable=False, server_default=text("''")),
    Column("parent_kind", Text),
    Column("parent_uid", Text),
)
"""What followers of the feed have to hear of records that are gone."""

events = Table(
    "events",
    metadata,
    Column("uid", Text, ForeignKey("records.uid", ondelete="CASCADE"), primary_key=True),
    Column("id", Number, primary_key=True, autoincrement=False),
    Column("at", Moment, nullable=False),
    Column("type", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("message", Text, nullable=False),
    # kept in the order of the key: the events of a record lie side by side
    sqlite_with_rowid=False,
)

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("org", Text, primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("uid", Text, nullable=False),
    Column("used_at", Moment, nullable=False, index=True),
    sqlite_with_rowid=False,
)
"""Outlives its record on purpose: a late repeat must not make it again."""

once_tokens = Table(
    "once_tokens",
    metadata,
    Column("token", Text, primary_key=True),
    Column("expires_at", Moment, nullable=False, index=True),
    sqlite_with_rowid=False,
)

audit = Table(
    "audit",
    metadata,
    Column("id", Number, primary_key=True, autoincrement=True),
    Column("at", Moment, nullable=False),
    Column("org", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("request", Text, nullable=False),
    Column("operation", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("change", Text, nullable=False, server_default=text("''")),
    Index("audit_by_time", "at"),
    Index("audit_by_org", "org", "id"),
    Index("audit_by_target", "target", "id"),
    # an id is never given twice, also after the newest entries were dropped
    sqlite_autoincrement=True,
)
"""Who did what. Ids grow in the order of commits, since writers pass one by one."""

leases = Table(
    "leases",
    metadata,
    Column("name", Text, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("expires_at", Moment, nullable=False),
)

series = Table(
    "series",
    metadata,
    Column("number", Number, primary_key=True, autoincrement=True),
    Column("run", Number, ForeignKey("records.number", ondelete="CASCADE"), nullable=False),
    Column("task", Name, nullable=False),
    Column("name", Name, nullable=False),
    Column("attempt", Number, nullable=False),
    Column("restart", Number, nullable=False),
    Column("count", Number, nullable=False),
    Column("first", Double),
    Column("last", Double),
    Column("min", Double),
    Column("max", Double),
    Column("last_step", Number, nullable=False),
    Column("last_at", Number, nullable=False),
    Column("nan", Number, nullable=False),
    Column("earlier", Number, nullable=False),
    Column("chunks", Number, nullable=False),
    Column("source", Name, nullable=False, server_default="report"),
    Column("removed", Number, nullable=False, server_default="0"),
    Index("series_by_run", "run", "task", "name", "source", unique=True),
    sqlite_autoincrement=True,
)
"""What lists show of a series. ``last_at`` is in milliseconds since 1970; NULL stands for what is no
number. Of its points, ``removed`` are not kept any more.
"""

chunks = Table(
    "chunks",
    metadata,
    Column(
        "series",
        Number,
        ForeignKey("series.number", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("number", Number, primary_key=True, autoincrement=False),
    Column("attempt", Number, nullable=False),
    Column("restart", Number, nullable=False),
    Column("earlier", Number, nullable=False),
    Column("n", Number, nullable=False),
    Column("nan", Number, nullable=False),
    Column("from_step", Number, nullable=False),
    Column("to_step", Number, nullable=False),
    Column("envelope", LargeBinary, nullable=False),
    Column("bytes", LargeBinary, nullable=False),
    # For the chunks that a restart replaces, and for charts of a range of steps.
    Index("chunks_by_step", "series", "earlier", "to_step"),
)
"""Points of a series. SQLite keeps the rest of a large value apart, so a look at the envelopes reads
no points.
"""

metric_usage = Table(
    "metric_usage",
    metadata,
    Column("org", Text, primary_key=True),
    Column("points", Number, nullable=False),
    sqlite_with_rowid=False,
)
"""How many points the runs of an organisation keep. It changes in the transactions that add and
remove points, so nothing is ever counted.
"""

metric_files = Table(
    "metric_files",
    metadata,
    Column(
        "run",
        Number,
        ForeignKey("records.number", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("attempt", Number, primary_key=True, autoincrement=False),
    Column("task", Name, primary_key=True),
    Column("source", Name, primary_key=True),
    Column("path", Name, primary_key=True),
    Column("identity", Text, nullable=False),
    Column("position", Number, nullable=False),
    Column("refused", Number, nullable=False),
    Column("state", Text, nullable=False),
    sqlite_with_rowid=False,
)
"""How far files of reports were read, and whether some of it was refused."""

summary_tags = Table(
    "summary_tags",
    metadata,
    Column(
        "run",
        Number,
        ForeignKey("records.number", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("name", Name, primary_key=True),
    Column("kind", Name, primary_key=True),
    Column("count", Number, nullable=False),
    Column("last_step", Number, nullable=False),
    Column("last_at", Number, nullable=False),
    sqlite_with_rowid=False,
)
"""Tags of event files with histograms, images and the like. ``last_at`` is in milliseconds since
1970. It changes in the transactions that note how far a file was read.
"""

experiments = Table(
    "experiments",
    metadata,
    Column("org", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("name", Name, nullable=False),
    Column("created", Number, nullable=False),
    Column("updated", Number, nullable=False),
    Column("deleted", Number, nullable=False),
    Column("tags", Text, nullable=False),
    Column("revision", Number, nullable=False, server_default="0"),
    Index("experiments_by_name", "org", "name", unique=True),
    # For those who follow the changes of experiments.
    Index("experiments_by_revision", "revision"),
    sqlite_with_rowid=False,
)
"""Groups of runs. Times are milliseconds since 1970; ``tags`` is a JSON object. ``revision`` is that
of the newest change, of the same counter as those of records; 0 if there was none since step 0014.
"""

runs = Table(
    "runs",
    metadata,
    Column(
        "number",
        Number,
        ForeignKey("records.number", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("org", Text, nullable=False),
    Column("experiment", Text, nullable=False),
    Column("deleted", Number, nullable=False),
    Column("name", Name, nullable=False),
    Column("state", Text),
    Column("start", Number, nullable=False),
    Column("end", Number),
    Column("inputs", Text, nullable=False),
    # For searches in one experiment, newest first. The next index is for searches in all
    # experiments.
    Index("runs_by_experiment", "org", "experiment", "deleted", "number"),
    Index("runs_by_org", "org", "deleted", "number"),
)
"""What a run has beside its record. ``state`` and ``end`` are NULL for a job, whose record says it."""


def _pairs(name: str) -> Table:
    """A table of texts of runs by their keys. The head of a value stands in the index."""
    return Table(
        name,
        metadata,
        Column(
            "run",
            Number,
            ForeignKey("records.number", ondelete="CASCADE"),
            primary_key=True,
            autoincrement=False,
        ),
        Column("key", Name, primary_key=True),
        Column("org", Text, nullable=False),
        Column("head", Name, nullable=False),
        Column("value", Name, nullable=False),
        Index(f"{name}_by_value", "org", "key", "head", "run"),
        sqlite_with_rowid=False,
    )


run_params = _pairs("run_params")
run_tags = _pairs("run_tags")
