"""A server is killed while it is made, started, moved to a new schema, copied and put back."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.state.sql.migrations import HEAD
from cloud_ml.state.sql.store import SqlStateStore
from faults.scenes import SLICE, Day, Reviver, fragile, insist, order, reached, start_until_up
from support import invariants
from support.old_schema import step
from support.server import RealServer, eventually, trainer

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("failpoints")]

FIRST = (
    "sealing.make.before",
    "state.create.before",
    "state.create.after",
    "state.migrate.before",
    "state.migrate.after",
    "state.commit.before",
    "state.commit.after",
    "start.store",
    "start.made",
    "start.told",
    "start.engine",
    "start.leads",
)
AGAIN = (
    "start.store",
    "start.engine",
    "start.leads",
    "state.commit.before",
    "state.commit.after",
    "controller.ensure.before",
    "controller.ensure.after",
    "supervisor.claim.before",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with fragile(tmp_path_factory.mktemp("fragile")) as server:
        yield server


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """A server whose data may be removed while it is down."""
    with fragile(tmp_path_factory.mktemp("fresh")) as server:
        yield server


@pytest.mark.parametrize("point", FIRST[::SLICE])
def test_killed_at_the_very_first_start(point: str, fresh: RealServer) -> None:
    fresh.terminate()
    shutil.rmtree(fresh.data)
    order(fresh, point)
    assert start_until_up(fresh) in (
        0,
        1,
    )  # a server that says that it is up may die the next moment
    with Reviver(fresh):
        eventually(lambda: reached(fresh, point), "somebody has passed")
        client = fresh.client()  # with the key that the operator finds
        assert insist(lambda: client.whoami().role) == "admin"
        assert [bucket.name for bucket in insist(client.storage.list_buckets)] == ["cloudml"]
    assert invariants.left_behind(fresh) == []


@pytest.mark.parametrize("point", AGAIN[::SLICE])
def test_killed_again_while_it_recovers(point: str, server: RealServer, tmp_path: Path) -> None:
    """First with an attempt handed over and an answer outstanding, then at ``point`` of the next
    start.
    """
    day = Day(server, tmp_path, f"again-{point.replace('.', '-')}")
    order(server, "controller.ensure.after")

    def second() -> None:
        eventually(lambda: reached(server, "controller.ensure.after"), "the first crash")
        order(server, point)

    with Reviver(server, before=second):
        day.work()
    assert reached(server, point) is not None, "nobody passed"
    assert day.wrong == []


@pytest.mark.parametrize("point", ["state.migrate.before", "state.migrate.after"])
def test_killed_on_the_way_to_a_new_schema(point: str, fresh: RealServer) -> None:
    fresh.terminate()
    for file in fresh.data.glob("state.db*"):
        file.unlink()
    step("0001", f"sqlite:///{fresh.data}/state.db")
    order(fresh, point)
    assert fresh.cli("server", "--data-dir", str(fresh.data), "migrate", home=fresh.home).code == -9
    assert reached(fresh, point) is not None
    assert version(fresh.data / "state.db") == ("0001" if point.endswith("before") else HEAD)
    fresh.cli("server", "--data-dir", str(fresh.data), "migrate", home=fresh.home).good()
    assert version(fresh.data / "state.db") == HEAD
    fresh.data.joinpath("credentials.json").unlink()
    fresh.start()
    assert fresh.client().whoami().role == "admin"
    assert invariants.left_behind(fresh) == []


def maintain(server: RealServer, *words: str) -> int:
    return server.cli("server", "--data-dir", str(server.data), *words, home=server.home).code


@pytest.mark.parametrize("point", ["state.backup.before", "state.backup.after"])
def test_killed_while_it_is_copied(point: str, server: RealServer, tmp_path: Path) -> None:
    name = f"kept-{point.replace('.', '-')}"
    server.client().submit_train_job(
        TrainJob(name, "trainer.task", str(trainer(tmp_path, "")), save_mode=True)
    )
    copy = tmp_path / "copy.db"
    order(server, point)
    assert maintain(server, "backup", str(copy)) == -9
    assert reached(server, point) is not None
    assert copy.exists() == point.endswith("after")
    if not copy.exists():
        assert maintain(server, "backup", str(copy)) == 0
        assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []
    assert maintain(server, "check") == 0
    with closing(SqlStateStore.open(f"sqlite:///{copy}", create=False)) as store:
        assert store.revision() > 0
    assert name in names_in(copy)


@pytest.mark.parametrize(
    "point", ["state.restore.before", "state.restore.aside", "state.restore.after"]
)
def test_killed_while_it_is_put_back(point: str, server: RealServer, tmp_path: Path) -> None:
    name = f"saved-{point.replace('.', '-')}"
    server.client().submit_train_job(
        TrainJob(name, "trainer.task", str(trainer(tmp_path, "")), save_mode=True)
    )
    copy = tmp_path / "copy.db"
    assert maintain(server, "backup", str(copy)) == 0
    server.terminate()
    order(server, point)
    assert maintain(server, "restore", str(copy)) == -9
    assert reached(server, point) is not None
    if point == "state.restore.aside":  # there is none: never is an empty one made in its place
        with pytest.raises(AssertionError, match=r"missing[\s\S]*cloudml server restore"):
            server.start()
    assert maintain(server, "restore", str(copy)) == 0
    server.start()
    assert server.client().describe_train_job(name).phase == "Saved"
    assert invariants.left_behind(server) == []


def names_in(database: Path) -> list[str]:
    with closing(sqlite3.connect(database)) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM records")]


def version(database: Path) -> str:
    with closing(sqlite3.connect(database)) as connection:
        return str(connection.execute("SELECT version_num FROM schema_version").fetchone()[0])
