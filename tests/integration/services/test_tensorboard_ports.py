"""Who reaches a TensorBoard: nobody but the gateway, whatever network jobs have here.

TensorBoard's fast data server answers anybody on a port of its loopback.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from cloud_ml.engines.local.isolation.sandbox import find_bwrap
from cloud_ml.models.tracking.tensorboard import NewTensorBoard
from support.browser import FETCH, Browser, Page
from support.event_files import TUNED
from support.gateway_process import free_port
from support.server import RealServer, eventually, serving

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("tensorboards"),
    pytest.mark.timeout(300),
]

_LISTENS = "0A"
_FAST_SERVER = "server"
_METRIC = "training%2Fhptuning%2Fmetric"
_ASK = """
import socket, sys
for port in sys.argv[1:]:
    try:
        socket.create_connection(("127.0.0.1", int(port)), timeout=30).close()
        print("answered at", port)
    except ConnectionRefusedError:
        print("refused at", port)
for table in ("/proc/net/tcp", "/proc/net/tcp6"):
    with open(table) as file:
        for words in map(str.split, file):
            if words[3] == "0A":
                print("sees", words[9], "on", int(words[1].rpartition(":")[2], 16))
"""


@dataclass(frozen=True)
class Shown:
    """A TensorBoard that shows the curves of a job."""

    server: RealServer
    processes: list[psutil.Process]
    has_own_loopback: bool

    @property
    def ports(self) -> dict[str, int]:
        """The TCP ports it listens on, in whatever network, by the inodes of their sockets."""
        own = {
            link.stat().st_ino
            for process in self.processes
            for link in Path(f"/proc/{process.pid}/fd").iterdir()
            if str(link.readlink()).startswith("socket:")
        }
        return {
            inode: port
            for process in self.processes
            for inode, port in _listeners(process.pid).items()
            if int(inode) in own
        }


@pytest.fixture(
    scope="module",
    params=[
        {},
        {"CLOUDML_ENGINE_NETWORK": "host"},
        {"CLOUDML_ENGINE_NETWORK": "none"},
        {"CLOUDML_ENGINE_SANDBOX": "landlock"},
    ],
    ids=["auto", "host", "none", "landlock"],
)
def shown(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Shown]:
    # Also where the path of a job's folder is longer than the address of a Unix socket can be.
    folder = tmp_path_factory.mktemp("ports") / ("long-name-" * 10)
    folder.mkdir()
    with serving(folder, CLOUDML_APPLICATIONS_PORT=free_port(), **request.param) as server:
        (script := folder / "seen.py").write_text(TUNED)
        made = ("jobs", "submit", "-W", str(script), "-n", "seen")
        server.cli(*made, "--output-path", "fds://cloudml/seen/one").good()
        boards = server.client().tensorboards
        boards.create(NewTensorBoard(name="curves", logdir="fds://cloudml/seen/"))
        url = boards.open("curves").url
        browser = Browser(urlsplit(url).port or 0)
        assert browser.get(url).status == 303
        scalars_url = f"{boards.describe('curves').address}/data/plugin/scalars"

        pages: list[Page] = []

        def tags() -> bool:
            pages.append(page := browser.get(f"{scalars_url}/tags", FETCH))
            return page.status == 200 and set(page.json()) == {"one"}

        try:
            eventually(tags, "the run is shown", limit_s=120)
        except AssertionError as error:
            error.add_note(f"of {len(pages)} answers the last is {pages[-1]}")
            error.add_note(server.cli("tensorboard", "describe", "curves").out)
            error.add_note(server.cli("tensorboard", "logs", "curves").out)
            raise
        points = browser.get(f"{scalars_url}/scalars?run=one&tag={_METRIC}", FETCH).json()
        assert [step for _, step, _ in points] == [0, 10_000, 20_000]
        name = urlsplit(boards.describe("curves").address).hostname or ""
        pids = server.processes_of(name.partition(".")[0].removeprefix("tb-"))
        in_bubblewrap = "CLOUDML_ENGINE_SANDBOX" not in request.param and bool(find_bwrap(None)[0])
        yield Shown(server, [psutil.Process(pid) for pid in pids], in_bubblewrap)


def test_its_fast_data_server_runs_where_nobody_else_is(shown: Shown) -> None:
    names = [process.name() for process in shown.processes]
    if shown.has_own_loopback:
        assert _FAST_SERVER in names
        assert len(shown.ports) == 1, "of the fast data server, and none of TensorBoard"
    else:
        assert _FAST_SERVER not in names
        assert not shown.ports


def test_nobody_on_the_machine_finds_a_port_of_it(shown: Shown) -> None:
    assert not _listeners(os.getpid()).keys() & shown.ports.keys()


def test_a_job_of_the_organisation_gets_no_answer(shown: Shown) -> None:
    (script := shown.server.folder / "ask.py").write_text(_ASK)
    made = ("jobs", "submit", "-W", str(script), "-n", "ask", "--")
    output = shown.server.cli(*made, *map(str, shown.ports.values())).good().out
    for inode, port in shown.ports.items():
        assert f"sees {inode} " not in output
        # Somebody else may have the same port in the network of the job.
        if f" on {port}\n" not in output:
            assert f"refused at {port}\n" in output


def _listeners(pid: int) -> dict[str, int]:
    """The ports that are listened on in the network of a process, by the inodes of sockets."""
    found = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == _LISTENS:
                found[words[9]] = int(words[1].rpartition(":")[2], 16)
    return found
