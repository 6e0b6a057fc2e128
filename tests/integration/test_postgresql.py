"""What is particular to a database that is a server of its own: it fails, it is shared, it has
passwords.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import make_url

from cloud_ml.domain.tracking.runs import RunChange, RunState
from cloud_ml.errors import CloudMlError, Conflict, Damaged, InvalidRequest, OutOfSpace, Unavailable
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.state.sql import migrations
from cloud_ml.state.sql.dialects import postgresql
from cloud_ml.state.sql.store import SqlStateStore
from cloud_ml.state.sql.tables import metadata
from cloud_ml.testing.state.samples import (
    NOW,
    SAMPLE,
    Made,
    SampleSpec,
    commit,
    event,
    list_messages,
    make,
    once,
    race,
)
from cloud_ml.testing.state.tracking.samples import add_run, log
from support.postgres import Postgres, running
from support.server import RealServer, eventually, trainer
from support.writing import WritingProcess, check_kept

pytestmark = pytest.mark.xdist_group("postgresql")


@pytest.fixture
def url(postgres: Postgres) -> str:
    return postgres.emptied()


@pytest.fixture
def store(url: str) -> Iterator[SqlStateStore]:
    store = SqlStateStore.open(url)
    yield store
    store.close()


@pytest.fixture
def other(url: str) -> Iterator[SqlStateStore]:
    """The store of another server."""
    store = SqlStateStore.open(url)
    yield store
    store.close()


@pytest.fixture(scope="module")
def fragile() -> Iterator[Postgres]:
    """A cluster that these tests may crash. Each of them leaves it running."""
    with running() as cluster:
        yield cluster


# ---- opening


def test_the_steps_make_the_tables_we_use(store: SqlStateStore) -> None:
    with store._database.reader.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": migrations.VERSION_TABLE}
        )
        assert compare_metadata(context, metadata) == []


def test_servers_that_start_together_share_one_database(postgres: Postgres) -> None:
    stores = race([partial(SqlStateStore.open, postgres.make())] * 4)
    for number, store in enumerate(stores):
        assert isinstance(store, SqlStateStore), store
        make(store, f"n{number}")
    for store in stores:
        assert isinstance(store, SqlStateStore)
        assert len(store.list(SAMPLE).items) == len(stores)
        store.close()


def test_a_database_that_must_have_our_tables_is_not_given_any(postgres: Postgres) -> None:
    url = postgres.make()
    with pytest.raises(Damaged, match=r"none of Cloud ML's tables") as refused:
        SqlStateStore.open(url, create=False)
    assert "pg_restore" in str(refused.value.hint)
    assert (
        postgres.execute("SELECT 1 FROM pg_tables WHERE schemaname = 'public'", database_of(url))
        == []
    )


def test_tables_of_something_else_are_left_alone(postgres: Postgres) -> None:
    url = postgres.make()
    postgres.execute("CREATE TABLE records (x int)", database_of(url))
    with pytest.raises(Conflict, match="something else"):
        SqlStateStore.open(url)


def test_a_newer_schema_is_refused(postgres: Postgres) -> None:
    url = postgres.make()
    SqlStateStore.open(url).close()
    postgres.execute("UPDATE schema_version SET version_num = '9999'", database_of(url))
    with pytest.raises(Conflict, match="newer version"):
        SqlStateStore.open(url)


def test_nothing_is_written_once_the_schema_is_newer(
    postgres: Postgres, serve: Callable[..., RealServer]
) -> None:
    url = postgres.make()
    server = serve(CLOUDML_SERVER_DATABASE_URL=url)
    client = server.client()

    def change_schema(version: str) -> None:
        postgres.execute(f"UPDATE schema_version SET version_num = '{version}'", database_of(url))

    change_schema("9999")
    with pytest.raises(Unavailable, match="has the schema 9999 now, and this server writes"):
        client.storage.create_bucket("late")
    with pytest.raises(HTTPError) as refused:
        urlopen(f"{server.endpoint}/readyz", timeout=30)
    refused.value.close()
    assert refused.value.code == 503
    assert "another version of Cloud ML has changed it" in server.log()
    assert [bucket.name for bucket in client.storage.list_buckets()] == ["cloudml"], "it reads"
    change_schema(migrations.HEAD)
    client.storage.create_bucket("late")


def test_a_write_that_waits_for_a_migration_is_refused_after_it(postgres: Postgres) -> None:
    url = postgres.make()
    store = SqlStateStore.open(url)
    make(store, "before")
    migrator = postgresql.open_database(make_url(url), create=False, readers=1)
    refused: list[Exception] = []

    def write() -> None:
        try:
            make(store, "after")
        except Unavailable as error:
            refused.append(error)

    with closing(migrator), migrator.writer.begin() as connection:
        writing = threading.Thread(target=write)
        writing.start()
        eventually(
            lambda: (
                connection.exec_driver_sql(
                    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
                ).scalar_one()
                == 1
            ),
            "the write waits",
        )
        connection.exec_driver_sql("UPDATE schema_version SET version_num = '9999'")
    writing.join(30)
    with store._database.reader.connect() as connection:
        names = connection.exec_driver_sql("SELECT name FROM records").scalars().all()
    assert names == ["before"]
    assert len(refused) == 1
    store.close()


def test_a_database_that_cannot_hold_every_text_is_refused(postgres: Postgres) -> None:
    with pytest.raises(InvalidRequest, match="LATIN1; allowed is UTF8"):
        SqlStateStore.open(postgres.make("ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"))


def test_commits_wait_for_the_disk_even_where_the_default_is_not_to(postgres: Postgres) -> None:
    url = postgres.make()
    postgres.execute(f"ALTER DATABASE {database_of(url)} SET synchronous_commit = off")
    with closing(SqlStateStore.open(url)) as store, store._database.writer.connect() as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"
        assert (
            connection.exec_driver_sql("SHOW idle_in_transaction_session_timeout").scalar() == "10s"
        )


# ---- what may go wrong


def test_a_full_disk_fails_writes_and_not_reads(store: SqlStateStore, postgres: Postgres) -> None:
    made = make(store)
    database = "shared"
    postgres.execute(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'no space left' USING ERRCODE = 'disk_full'; END $$",
        database,
    )
    postgres.execute(
        "CREATE TRIGGER full_disk BEFORE INSERT ON records EXECUTE FUNCTION full_disk()", database
    )
    try:
        with pytest.raises(OutOfSpace, match="no space left"):
            make(store, "two")
        assert store.get(SAMPLE, made.key.uid) == made
    finally:
        postgres.execute("DROP FUNCTION full_disk CASCADE", database)
    assert make(store, "two").revision == made.revision + 1


def test_a_database_that_only_reads_is_told(postgres: Postgres) -> None:
    url = postgres.make()
    SqlStateStore.open(url).close()
    postgres.execute(f"ALTER DATABASE {database_of(url)} SET default_transaction_read_only = on")
    with closing(SqlStateStore.open(url)) as store:
        assert store.list(SAMPLE).items == ()
        with pytest.raises(OutOfSpace, match="read-only"):
            make(store)


def test_tables_that_vanish_are_damage(postgres: Postgres) -> None:
    url = postgres.make()
    with closing(SqlStateStore.open(url)) as store:
        postgres.execute("DROP TABLE events", database_of(url))
        with pytest.raises(Damaged, match="events"):
            make(store, events=[event("made")])


def test_a_writer_that_holds_on_keeps_others_waiting_for_so_long_only(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(postgresql._COMMON, "lock_timeout", "100ms")
    with closing(SqlStateStore.open(url)) as store:
        with psycopg.connect(url) as holder:
            holder.execute(postgresql._RIGHT_TO_WRITE)
            with pytest.raises(Unavailable, match="lock timeout"):
                make(store)
        make(store)


def test_a_writer_that_stalls_loses_its_right(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(SqlStateStore.open(url)) as other:
        made = make(other)
        # From now on, for connections that are not open yet.
        monkeypatch.setitem(postgresql._COMMON, "idle_in_transaction_session_timeout", "500ms")
        stalled = SqlStateStore.open(url)
        asleep, awake = threading.Event(), threading.Event()
        results: list[object] = []

        def sleep_on(spec: SampleSpec) -> SampleSpec:
            asleep.set()
            assert awake.wait(60)
            return spec

        def attempt() -> object:
            try:
                return stalled.change_spec(SAMPLE, made.key.uid, sleep_on, now=NOW)
            except CloudMlError as error:
                return error

        with closing(stalled):
            pending = threading.Thread(target=lambda: results.append(attempt()))
            pending.start()
            assert asleep.wait(60)
            make(other, "two")  # waits for the right, and gets it
            awake.set()
            pending.join(60)
            assert isinstance(results[0], Unavailable), results
            eventually(lambda: _made(stalled, "three"), "it writes again")


def _made(store: SqlStateStore, name: str) -> bool:
    """A busy machine may stall between two statements, too."""
    try:
        make(store, name)
    except Unavailable:
        return False
    return True


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:hunter2@127.0.0.1:1/state",
        "postgresql://ann@127.0.0.1:1/state?password=hunter2",
        "postgresql://ann:hunter2@127.0.0.1:1/state?no_such_word=1",
        "postgresql+asyncpg://ann:hunter2@127.0.0.1/state",
        "postgresql://ann:hunter2@127.0.0.1",
        "postgresql://ann:hunter2@127.0.0.1:port/state",
        "postgresql://ann:hunter2@/state?host=/nowhere",
    ],
)
def test_no_password_is_ever_told(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises((Unavailable, InvalidRequest)) as refused:
        SqlStateStore.open(url)
    chain = [refused.value, refused.value.__cause__, refused.value.__context__]
    assert [error for error in chain if "hunter2" in repr(error)] == []
    assert "hunter2" not in str(refused.value.document()) + caplog.text


def test_a_wrong_password_is_refused_without_it(fragile: Postgres) -> None:
    url = fragile.make()
    fragile.execute("CREATE ROLE ann LOGIN PASSWORD 'right'")
    with fragile.rules(f"local {database_of(url)} ann scram-sha-256"):
        wrong = (
            make_url(url)
            .set(username="ann", password="hunter2")
            .render_as_string(hide_password=False)
        )
        with pytest.raises(Unavailable, match="password authentication failed") as refused:
            SqlStateStore.open(wrong)
    assert "hunter2" not in str(refused.value.document())


# ---- several servers


def test_commits_of_other_servers_are_heard_and_our_own_are_not_heard_twice(
    store: SqlStateStore, other: SqlStateStore
) -> None:
    heard: list[int] = []
    store.subscribe(lambda: heard.append(store.revision()))
    made = make(other)
    eventually(lambda: made.revision in heard, "the commit of the other store is heard")
    mine = make(store, "mine")
    assert other.acquire_lease("leader", "b", ttl_s=10, now=NOW) is not None  # nobody follows these
    last = make(other, "last")
    eventually(lambda: last.revision in heard, "the last commit is heard")
    assert heard == [made.revision, mine.revision, last.revision]


def test_the_end_of_a_run_is_heard_by_other_servers(
    store: SqlStateStore, other: SqlStateStore
) -> None:
    uid, heard = add_run(store, "one"), threading.Event()
    at = other.revision()

    def look() -> None:
        if other.changes(at):
            heard.set()

    other.subscribe(look)
    log(store, uid, metrics={"loss": 0.5})
    assert (other.revision(), heard.is_set()) == (at, False)
    ended = store.tracking.change_run(uid, RunChange(state=RunState.FINISHED))
    assert heard.wait(30)
    assert other.tracking.run(uid) == ended


def test_revisions_are_in_the_order_of_commits_whoever_writes(
    store: SqlStateStore, other: SqlStateStore
) -> None:
    """A follower that reads on from the last revision it saw misses nothing."""
    finished = threading.Event()
    followed: list[str] = []

    def follow() -> None:
        seen = 0
        while True:
            last_round = finished.is_set()
            for change in store.changes(seen):
                followed.append(change.uid)
                seen = change.revision
            if last_round:
                return

    def write(into: SqlStateStore, prefix: str) -> list[Made]:
        return [make(into, f"{prefix}{number}", events=[event("made")]) for number in range(40)]

    follower = threading.Thread(target=follow)
    follower.start()
    made = race(
        [
            partial(write, into, f"{name}-{n}-")
            for name, into in (("a", store), ("b", other))
            for n in range(2)
        ]
    )
    finished.set()
    follower.join()
    records = [record for some in made if not isinstance(some, CloudMlError) for record in some]
    assert len(records) == 160
    assert followed == [
        record.key.uid for record in sorted(records, key=lambda record: record.revision)
    ]
    assert sorted(record.revision for record in records) == list(range(1, 161))
    ids = sorted(one.id for record in records for one in store.events(record.key.uid))
    assert ids == list(range(1, 161))


def test_a_token_is_used_up_for_all_servers(store: SqlStateStore, other: SqlStateStore) -> None:
    outcomes = race([partial(into.remember, once()) for into in (store, other) * 4])
    assert [outcome for outcome in outcomes if outcome is None] == [None]


def test_one_of_two_servers_is_killed_in_the_middle_of_its_work(
    url: str, store: SqlStateStore
) -> None:
    killed, surviving = WritingProcess(url, "killed"), WritingProcess(url, "surviving")
    try:
        surviving.read(50)
        killed.read(50)
    finally:
        killed.kill()
    try:
        surviving.read(200)  # pipes hold far less: these were written after the other had died
    finally:
        surviving.kill()
    assert len(killed.acknowledged) >= 50
    check_kept(store, killed.acknowledged | surviving.acknowledged)


# ---- PostgreSQL itself ends


def test_what_was_acknowledged_survives_a_crash_under_writers_which_go_on_by_themselves(
    fragile: Postgres,
) -> None:
    store = SqlStateStore.open(fragile.make())
    finished = threading.Event()
    acknowledged: list[Made] = []
    refusals: list[CloudMlError] = []

    def write(thread: int) -> None:
        number = 0
        while not finished.is_set():
            number += 1
            try:
                acknowledged.append(
                    commit(store, make(store, f"{thread}-{number}", events=[event("made")]))
                )
            except CloudMlError as error:
                refusals.append(error)

    writers = [threading.Thread(target=write, args=(thread,)) for thread in range(4)]
    for writer in writers:
        writer.start()
    try:
        for crash in (fragile.crash, fragile.stop):
            grows(acknowledged, "records are made")
            crash()
            grows(refusals, "writers are refused")
            fragile.start()
        grows(acknowledged, "records are made again")
    finally:
        finished.set()
        for writer in writers:
            writer.join()
    assert {type(error) for error in refusals} == {Unavailable}
    assert [record for record in acknowledged if store.get(SAMPLE, record.key.uid) != record] == []
    assert all(list_messages(store, record) == ["made"] for record in acknowledged)
    store.close()


def test_other_servers_are_heard_again_after_a_crash(
    fragile: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    url = fragile.make()
    follower, writer = SqlStateStore.open(url), SqlStateStore.open(url)
    heard = threading.Event()
    follower.subscribe(heard.set)
    fragile.crash()
    eventually(lambda: "unheard" in caplog.text, "the loss is in the log")
    fragile.start()
    assert heard.wait(30), "whoever listens again looks at once for what it has missed"
    heard.clear()

    def written() -> bool:
        try:
            make(writer)
        except Unavailable:
            return False
        return True

    eventually(written, "the other store writes")
    assert heard.wait(30)
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    follower.close()
    writer.close()


@pytest.mark.slow
def test_a_server_and_its_jobs_outlive_a_crash_of_the_database(
    fragile: Postgres, serve: Callable[..., RealServer], tmp_path: Path
) -> None:
    server = serve(CLOUDML_SERVER_DATABASE_URL=fragile.make())
    client = server.client()
    source = str(trainer(tmp_path, "import time, sys; time.sleep(float(sys.argv[1]))"))
    running_job = client.submit_train_job(
        TrainJob("before", "trainer.task", source, job_args=["1"])
    )
    eventually(lambda: client.get_train_job("before").phase == "Running", "the job runs")
    fragile.crash()
    with pytest.raises(HTTPError, match="503") as refused:
        urlopen(f"{server.endpoint}/readyz", timeout=60)
    refused.value.close()
    fragile.start()
    assert running_job.wait(60).phase == "Succeeded"
    assert (
        client.submit_train_job(TrainJob("after", "trainer.task", source, job_args=["0"]))
        .wait(60)
        .phase
        == "Succeeded"
    )
    server.terminate()
    assert not (server.data / "state.db").exists()


def grows(items: list[Any], what: str) -> None:
    """Wait for more of them."""
    before = len(items)
    eventually(lambda: len(items) >= before + 20, what)


def database_of(url: str) -> str:
    return make_url(url).database or ""
