"""Servers that share a data folder and a PostgreSQL, and those that must not."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.postgres import Postgres
from support.server import RealServer, eventually

pytestmark = pytest.mark.xdist_group("postgresql")

Settings = dict[str, object]


@pytest.fixture
def settings(postgres: Postgres) -> Settings:
    return {"CLOUDML_SERVER_DATABASE_URL": postgres.emptied()}


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[Callable[..., RealServer]]:
    """Makes a server that uses the data folder of another one."""
    made: list[RealServer] = []

    def make(first: RealServer, **settings: object) -> RealServer:
        folder = tmp_path / f"beside{len(made)}"
        folder.mkdir()
        made.append(RealServer(folder, **settings))
        made[-1].data = first.data
        return made[-1]

    yield make
    for server in made:
        server.kill()


def test_two_servers_share_objects_and_one_command_stops_both(
    serve: Callable[..., RealServer], beside: Callable[..., RealServer], settings: Settings
) -> None:
    settings["CLOUDML_SERVER_SHARED_DATA"] = "true"
    one = serve(**settings)
    other = beside(one, **settings).start()
    other.client().storage.upload_bytes(b"content", "fds://cloudml/sent-to-the-other")
    assert one.client().storage.head("fds://cloudml/sent-to-the-other").size == 7
    for server in (one, other):
        assert _answers(server)
    output = one.cli("server", "--data-dir", str(one.data), "stop").good().out
    assert one.process is not None
    assert other.process is not None
    for process in (one.process, other.process):
        assert f"The server (process {process.pid}) has stopped." in output
        assert process.wait(60) == 0


@pytest.mark.slow
def test_servers_that_start_together_on_an_empty_folder_share_it(
    tmp_path: Path, settings: Settings
) -> None:
    settings["CLOUDML_SERVER_SHARED_DATA"] = "true"
    servers = []
    for number in range(3):
        (tmp_path / f"{number}").mkdir()
        servers.append(RealServer(tmp_path / f"{number}", **settings))
        servers[-1].data = servers[0].data
    try:
        with ThreadPoolExecutor() as pool:
            list(pool.map(RealServer.start, servers))
        eventually(lambda: [_leads(server) for server in servers].count(True) == 1, "one leads")
        for number, server in enumerate(servers):
            assert _answers(server)
            server.client().secrets.create(f"from-{number}", "sealed")
        assert len(servers[0].client().secrets.list()) == len(servers)
    finally:
        for server in servers[1:]:
            server.kill()
        servers[0].destroy()


def test_a_leader_that_stops_in_order_is_followed(
    serve: Callable[..., RealServer], beside: Callable[..., RealServer], settings: Settings
) -> None:
    settings |= {"CLOUDML_SERVER_SHARED_DATA": "true", "CLOUDML_CONTROLLER_LEASE_TTL_S": 3600}
    one = serve(**settings)
    eventually(lambda: _leads(one), "the first server leads")
    other = beside(one, **settings).start()
    assert not _leads(other)
    one.terminate()
    eventually(lambda: _leads(other), "the other server leads")


@pytest.mark.slow
def test_a_server_that_does_not_say_so_is_refused(
    serve: Callable[..., RealServer], beside: Callable[..., RealServer], settings: Settings
) -> None:
    shared = {**settings, "CLOUDML_SERVER_SHARED_DATA": "true"}
    one = serve(**shared)
    assert one.process is not None
    with pytest.raises(AssertionError, match=f"another server .process {one.process.pid}. uses"):
        beside(one, **settings).start()
    one.kill()
    alone = beside(one, **settings).start()
    with pytest.raises(AssertionError, match="start it again with --shared-data"):
        beside(one, **shared).start()
    alone.terminate()


def test_a_server_with_another_data_folder_is_refused(
    serve: Callable[..., RealServer], settings: Settings
) -> None:
    one = serve(**settings)
    with pytest.raises(AssertionError) as refused:
        serve(**settings)
    assert "a server with another data folder uses this database" in str(refused.value)
    assert str(one.data) in str(refused.value)
    one.terminate()
    serve(**settings)


def test_servers_on_sqlite_share_nothing(serve: Callable[..., RealServer]) -> None:
    with pytest.raises(AssertionError, match="servers that share a data folder need PostgreSQL"):
        serve(CLOUDML_SERVER_SHARED_DATA="true")


def _answers(server: RealServer) -> bool:
    with urllib.request.urlopen(f"{server.endpoint}/readyz", timeout=10) as answer:
        return bool(answer.status == 200)


def _leads(server: RealServer) -> bool:
    with urllib.request.urlopen(f"{server.endpoint}/metrics", timeout=10) as answer:
        return "\ncloudml_controller_leads 1" in answer.read().decode()
