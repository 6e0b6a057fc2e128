"""A TensorBoard that copies what it shows, on a real server: for stores whose folders cannot be
mounted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from cloud_ml.models.tracking.tensorboard import NewTensorBoard
from support.browser import FETCH, Browser
from support.event_files import TUNED
from support.gateway_process import free_port
from support.server import RealServer, eventually, serving

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("tensorboards"),
    pytest.mark.timeout(300),
]

IDLE_S = 6


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    folder = tmp_path_factory.mktemp("mirrors")
    settings = {
        "CLOUDML_APPLICATIONS_PORT": free_port(),
        "CLOUDML_APPLICATIONS_IDLE_S": IDLE_S,
        "CLOUDML_APPLICATIONS_MIRROR": "true",
    }
    with serving(folder, **settings) as up:
        (script := up.folder / "seen.py").write_text(TUNED)
        submit(up, script, "seen-1", "0.1")
        yield up


def submit(server: RealServer, script: Path, name: str, rate: str) -> None:
    folder = ("--output-path", f"fds://cloudml/seen/{name}")
    made = ("jobs", "submit", "-W", str(script), "-n", name)
    server.cli(*made, *folder, "--", "--learning_rate", rate).good()


def requests(server: RealServer) -> dict[str, float]:
    with urlopen(f"{server.endpoint}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    name = "cloudml_tensorboard_mirror_requests_total{"
    return {
        line.split('"')[1]: float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name)
    }


def test_copies_follow_the_bucket_while_somebody_looks(server: RealServer) -> None:
    server.cli("tensorboard", "create", "-n", "seen", "-l", "fds://cloudml/seen").good()
    url = server.cli("tensorboard", "open", "seen").good().out.strip()
    browser = Browser(urlsplit(url).port or 0)
    browser.get(url)
    boards = server.client().tensorboards
    origin = boards.describe("seen").address

    def runs() -> set[str]:
        page = browser.get(f"{origin}/data/plugin/scalars/tags", FETCH)
        return {name.partition("/")[0] for name in page.json()} if page.status == 200 else set()

    eventually(lambda: runs() == {"seen-1"}, "the job is shown", limit_s=90)
    mounted = [
        line.split()[4]
        for process in Path("/proc").glob("[0-9]*")
        if b"--folder=/storage/cloudml/seen" in arguments_of(process)
        for line in (process / "mountinfo").read_text().splitlines()
    ]
    assert mounted, "its processes are found"
    assert not [target for target in mounted if target.startswith("/storage")]

    submit(server, server.folder / "seen.py", "seen-3", "0.3")
    eventually(lambda: runs() == {"seen-1", "seen-3"}, "a later job is shown", limit_s=60)

    server.kill()
    server.start()
    submit(server, server.folder / "seen.py", "seen-5", "0.5")
    eventually(lambda: len(runs()) == 3, "another server answers", limit_s=60)

    eventually(lambda: boards.describe("seen").phase == "Paused", "it pauses", limit_s=60)
    before = requests(server)
    assert before["list"] > 0
    submit(server, server.folder / "seen.py", "seen-7", "0.7")
    assert requests(server) == before, "nobody looks"
    eventually(lambda: len(runs()) == 4, "it wakes, and copies", limit_s=90)
    assert not [one for one in boards.events("seen") if one.reason == "AttemptFailed"]


def arguments_of(process: Path) -> list[bytes]:
    try:
        return (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def test_copies_stay_below_the_disk_limit(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A TensorBoard that has more than jobs may have would be ended, again and again."""
    with serving(
        (folder := tmp_path_factory.mktemp("limit")),
        CLOUDML_APPLICATIONS_PORT=free_port(),
        CLOUDML_APPLICATIONS_MIRROR="true",
        CLOUDML_ENGINE_DEFAULT_DISK="64M",
        CLOUDML_ENGINE_DISK_PERIOD_S="0.2",
    ) as server:
        storage, boards = server.client().storage, server.client().tensorboards
        (file := folder / "content").write_bytes(bytes(24 << 20))
        for number in range(4):
            storage.upload_file(file, f"fds://cloudml/large/{number}/events.out.tfevents.{number}")
        boards.create(NewTensorBoard(name="large", logdir="fds://cloudml/large/"))

        def log() -> str:
            return server.cli("tensorboard", "logs", "large").out

        eventually(lambda: "not all are shown" in log(), "the limit is reached", limit_s=90)
        assert "copies of event files may take 53687091 bytes" in log()
        # The copies were made: what is ended for its disk is ended within a few periods.
        eventually(lambda: requests(server)["list"] >= 4, "it looks again", limit_s=60)
        assert boards.describe("large").phase == "Running"
        assert "DiskQuotaExceeded" not in str(boards.events("large"))
