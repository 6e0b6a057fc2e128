"""TensorBoards on a real server: PyPI's program in a sandbox, seen through the application front."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.models.tracking.tensorboard import NewTensorBoard
from support.browser import FETCH, Browser
from support.event_files import TUNED
from support.gateway_process import free_port
from support.server import RealServer, eventually, serving, trainer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("tensorboards"),
    pytest.mark.timeout(300),
]

IDLE_S = 4
_METRIC = "training%2Fhptuning%2Fmetric"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    folder = tmp_path_factory.mktemp("boards")
    port = free_port()
    with serving(folder, CLOUDML_APPLICATIONS_PORT=port, CLOUDML_APPLICATIONS_IDLE_S=IDLE_S) as up:
        (script := up.folder / "seen.py").write_text(TUNED)
        for rate in ("0.1", "0.3"):
            made = ("jobs", "submit", "-W", str(script), "-n", f"seen-{rate[2:]}")
            folder_of_job = ("--output-path", f"fds://cloudml/seen/{rate}")
            up.cli(*made, *folder_of_job, "--", "--learning_rate", rate).good()
        yield up


@pytest.fixture(scope="module")
def browser(server: RealServer) -> Browser:
    """Signed in to the TensorBoard ``both``, which shows two jobs."""
    result = server.cli(
        "tensorboard", "create", "-n", "both", "-j", "seen-1", "-j", "seen-3"
    ).good()
    assert "both is created" in result.out
    url = server.cli("tensorboard", "open", "both").good().out.strip()
    browser = Browser(urlsplit(url).port or 0)
    page = browser.get(url)
    assert (page.status, page.headers["location"]) == (303, "/"), page
    return browser


def address(server: RealServer) -> str:
    return server.client().tensorboards.describe("both").address


def test_a_person_sees_the_curves_of_two_jobs(server: RealServer, browser: Browser) -> None:
    origin = address(server)
    page = browser.get(f"{origin}/")  # waits until TensorBoard answers
    assert page.status == 200, page.body
    assert b"<title>TensorBoard</title>" in page.body
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]

    def both() -> bool:
        tags = browser.get(f"{origin}/data/plugin/scalars/tags", FETCH).json()
        return set(tags) == {"seen-1", "seen-3"}

    eventually(both, "both jobs are shown", limit_s=60)
    scalars_url = f"{origin}/data/plugin/scalars/scalars?run=seen-1&tag={_METRIC}"
    points = browser.get(scalars_url, FETCH).json()
    assert [step for _, step, _ in points] == [0, 10_000, 20_000]
    assert "TensorBoard is ready" in server.cli("tensorboard", "logs", "both").good().out


@pytest.mark.usefixtures("browser")
def test_who_is_here_by_ssh_is_told_to_forward_the_port(server: RealServer) -> None:
    here = "192.0.2.7 50022 192.0.2.1 22"
    opened = server.cli("tensorboard", "open", "both", SSH_CONNECTION=here).good()
    port = urlsplit(opened.out.strip()).port
    forward = f"ssh -N -L {port}:127.0.0.1:{port} {os.uname().nodename}"
    assert forward in opened.err


def test_it_pauses_when_nobody_looks_and_the_next_request_starts_it(
    server: RealServer, browser: Browser
) -> None:
    boards, origin = server.client().tensorboards, address(server)
    assert browser.get(f"{origin}/").status == 200
    eventually(lambda: boards.describe("both").phase == "Paused", "it pauses", limit_s=60)
    messages = [event.message for event in boards.events("both") if event.reason == "Idle"]
    assert messages[-1] == "nobody has looked for 4s; the next request starts it"
    assert not processes_of("--name=seen-1"), "nothing of it runs"
    page = browser.get(f"{origin}/data/environment", FETCH)  # waits until it answers
    assert page.status == 200, page.body
    assert boards.events("both")[-1].reason != "Idle"


def test_it_may_only_read_and_sees_one_bucket(server: RealServer, browser: Browser) -> None:
    server.client().storage.create_bucket("hidden")
    assert browser.get(f"{address(server)}/data/environment", FETCH).status == 200
    buckets = {
        words[4]: words[5].split(",")
        for process in processes_of("--name=seen-1")  # one of them is outside of the sandbox
        for words in map(str.split, (process / "mountinfo").read_text().splitlines())
        if words[4].startswith("/storage/")
    }
    assert [Path(target).name for target in buckets] == ["cloudml"]
    assert all("ro" in options for options in buckets.values())


def test_a_study_is_shown_by_its_trials(server: RealServer, tmp_path: Path) -> None:
    code = trainer(tmp_path / "trials", TUNED)
    job = {"module_name": "trainer.task", "trainer_uri": str(code), "framework": "python"}
    study = {
        "name": "shown",
        "job": {**job, "output_path": "fds://cloudml/shown"},
        "space": {"learning_rate": [0.1, 0.3]},
        "objective": "training/hptuning/metric:min",
        "algorithm": "grid",
    }
    (file := tmp_path / "study.json").write_text(json.dumps(study))
    refused = server.cli("tensorboard", "create", "early", "--study", "shown")
    assert (refused.code, "there is no study shown" in refused.err) == (1, True)
    server.cli("hp", "submit", "-f", str(file)).good()
    server.cli("tensorboard", "create", "trials", "--study", "shown").good()
    url = server.cli("tensorboard", "open", "trials").good().out.strip()
    browser = Browser(urlsplit(url).port or 0)
    browser.get(url)
    origin = server.client().tensorboards.describe("trials").address

    def shown() -> bool:
        page = browser.get(f"{origin}/data/plugin/scalars/tags", FETCH)
        return page.status == 200 and set(page.json()) == {"shown-hp-0", "shown-hp-1"}

    eventually(shown, "both trials are shown", limit_s=120)


def test_a_deleted_one_is_gone_at_once(server: RealServer) -> None:
    boards = server.client().tensorboards
    boards.create(NewTensorBoard(name="short", logdir="fds://cloudml/seen/"))
    url = boards.open("short").url
    browser = Browser(urlsplit(url).port or 0)
    assert browser.get(url).status == 303
    origin = boards.describe("short").address
    server.cli("tensorboard", "delete", "short", "--wait").good()
    assert browser.get(f"{origin}/").status == 404
    assert "short" not in server.cli("tensorboard", "list").good().out


def test_a_key_that_is_disabled_closes_the_browsers_session(server: RealServer) -> None:
    admin = server.client().admin
    admin.create_user("tina")
    made = admin.create_key("tina")
    with CloudMlClient(made.key.access_key, made.secret_key, server.endpoint) as tina:
        url = tina.tensorboards.open("both").url
    browser = Browser(urlsplit(url).port or 0)
    assert browser.get(url).status == 303
    origin = address(server)
    assert browser.get(f"{origin}/data/environment", FETCH).status == 200
    admin.change_key(made.key.access_key, enabled=False)
    assert browser.get(f"{origin}/data/environment", FETCH).status == 401


def test_sessions_and_used_tickets_outlive_the_server_and_the_gateway(
    server: RealServer, browser: Browser
) -> None:
    once = server.client().tensorboards.open("both").url
    assert browser.get(once).status == 303
    origin = address(server)

    def shown() -> bool:
        return browser.get(f"{origin}/data/environment", FETCH).status == 200

    eventually(shown, "the TensorBoard runs", limit_s=60)
    server.terminate()
    assert browser.get(f"{origin}/data/environment", FETCH).status == 200, "no server runs"
    server.start()
    stranger = Browser(urlsplit(once).port or 0)
    assert stranger.get(once).status == 401, "the ticket was used"
    gateway = int((server.data / "gateway" / "gateway.lock").read_text())
    os.kill(gateway, signal.SIGKILL)

    def again() -> bool:
        try:
            return browser.get(f"{origin}/data/environment", FETCH).status == 200
        except OSError:
            return False

    eventually(again, "another gateway serves", limit_s=60)
    assert stranger.get(once).status == 401, "the ticket is older than the gateway"


def processes_of(argument: str) -> list[Path]:
    """Processes that have this argument, in ``/proc``."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if argument.encode() in words and b"cloud_ml.tensorboard" in words:
                found.append(folder)
    return found
