"""Runs that other processes log are waited for and watched, over a restart of the server, too."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.errors import NotFound, WaitTimedOut
from cloud_ml.models.tracking.run import Run, RunPage
from cloud_ml.sdk import logged_run
from support.server import RealServer, serving

pytestmark = pytest.mark.xdist_group("run-waits")

LOGGER = """
import sys
from cloud_ml.client import CloudMlClient
with CloudMlClient() as client, client.run(sys.argv[1]) as run:
    run.log(0, loss=0.5)
    print(run.uid, flush=True)
    if sys.stdin.readline() == "fail\\n":
        raise ValueError("on purpose")
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """A server of their own: it is restarted."""
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running


class Logger:
    """A program that logs a run, which ends when it is told to."""

    def __init__(self, server: RealServer, name: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", LOGGER, name],
            env=server.environment(server.user_home, **server.known),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        self.uid = self._process.stdout.readline().strip()

    def end(self, how: str = "") -> None:
        self._process.communicate(how + "\n", timeout=60)


def test_the_end_of_a_run_of_another_process_is_waited_for(
    server: RealServer, client: CloudMlClient
) -> None:
    good, bad = Logger(server, "good-run"), Logger(server, "bad-run")
    with pytest.raises(WaitTimedOut, match=r"good-run is still RUNNING after 0\.1 s"):
        client.runs.wait(good.uid, 0.1)
    late = server.cli("runs", "wait", "bad-run", "good-run", "--timeout", "1s")
    assert (late.code, late.err) == (124, "Timed out after 1s; bad-run is still RUNNING\n")
    words = {"COMP_WORDS": "cloudml runs wait bad-run goo", "COMP_CWORD": "4"}
    completed = server.cli(_CLOUDML_COMPLETE="bash_complete", **words).good()
    assert completed.out == "plain,good-run\n"
    changes = client.runs.watch(good.uid)
    first = next(changes)
    assert first.run is not None
    assert first.run.state == "RUNNING"
    with server.spawn("runs", "wait", "good-run", bad.uid) as waiter:
        good.end()
        bad.end("fail")
        out, err = waiter.communicate(timeout=60)
    assert (waiter.returncode, out, err) == (3, "good-run is FINISHED\nbad-run is FAILED\n", "")
    names = server.cli("runs", "wait", "good-run", "-o", "name").good()
    assert names.out == f"{good.uid}\n"
    ended = client.runs.wait(good.uid)
    assert (ended.succeeded, ended.metrics) == (True, {"loss": 0.5})
    assert next(changes).run == ended
    client.runs.delete(good.uid)
    assert [change.gone for change in changes][-1]
    with pytest.raises(NotFound):
        client.runs.wait(good.uid)


@pytest.mark.slow
def test_a_waiter_and_a_watcher_outlive_a_restart_of_the_server(
    server: RealServer, client: CloudMlClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = client.runs.create("over-a-restart")
    watcher = server.client().runs.watch(uid)
    assert not next(watcher).gone
    waiter, waits = server.client().runs, threading.Event()
    describe = waiter.describe

    def describe_later(uid: str, **wait: Any) -> Run:
        if wait:
            waits.set()
        return describe(uid, **wait)

    monkeypatch.setattr(waiter, "describe", describe_later)
    with ThreadPoolExecutor(2) as pool:
        waited = pool.submit(waiter.wait, uid, 100)
        watched = pool.submit(next, watcher)
        assert waits.wait(60)
        server.kill()
        server.start()
        client.runs.finish(uid, "KILLED")
        assert waited.result().state == "KILLED"
        change = watched.result()
    assert change.run is not None
    assert change.run.state == "KILLED"
    killed = server.cli("runs", "wait", uid)
    assert (killed.code, killed.out) == (4, "over-a-restart is KILLED\n")


@pytest.mark.slow
def test_a_block_goes_on_while_the_server_is_away_and_loses_nothing(
    server: RealServer, client: CloudMlClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logged_run, "_SEND_EVERY_S", 0.0)  # each value is sent, or tried
    with ThreadPoolExecutor(1) as pool:
        with client.run("outlives") as run:
            run.log(0, loss=0.0)
            server.kill()
            for step in range(1, 40):
                run.log(step, loss=step)
            started = pool.submit(server.start)
        started.result()
        with pytest.raises(ZeroDivisionError), client.run("fails") as failed:
            server.kill()
            failed.log(0, loss=0.5)
            started = pool.submit(server.start)
            raise ZeroDivisionError
        started.result()
    ended = client.runs.describe(run.uid)
    points = [(point.step, point.value) for point in client.runs.all_points(run.uid, "loss")]
    assert (ended.state, points) == ("FINISHED", [(step, float(step)) for step in range(40)])
    described = client.runs.describe(failed.uid)
    assert (described.state, described.metrics) == ("FAILED", {"loss": 0.5})


def test_a_run_that_is_deleted_is_not_waited_for(server: RealServer, client: CloudMlClient) -> None:
    uid = client.runs.create("deleted-run")
    with ThreadPoolExecutor(1) as pool:
        waited = pool.submit(server.client().runs.wait, uid, 100)
        client.runs.delete(uid)
        with pytest.raises(NotFound):
            waited.result()


def test_the_runs_of_an_experiment_are_waited_for(
    server: RealServer, client: CloudMlClient
) -> None:
    sweep = client.runs.ensure_experiment("sweep")
    runs = [client.runs.create(f"lr-{number}", sweep) for number in range(2)]
    late = server.cli("runs", "wait", "--experiment", "sweep", "--timeout", "1s")
    active = "sweep still has active runs: lr-1 (RUNNING), lr-0 (RUNNING)"
    assert (late.code, late.out, late.err) == (124, "", f"Timed out after 1s; {active}\n")
    with server.spawn("runs", "wait", "-e", "sweep") as waiter:
        client.runs.finish(runs[1], "FAILED")
        client.runs.finish(runs[0])
        out, err = waiter.communicate(timeout=60)
    assert (waiter.returncode, out, err) == (0, "No run of sweep is active.\n", "")
    assert server.cli("runs", "wait", "-e", "sweep", "-o", "name").good().out == "sweep\n"
    wrong = server.cli("runs", "wait", "-e", "swept")
    assert "there is no experiment 'swept'\n  allowed: one of sweep, Default" in wrong.err
    unlike = server.cli("runs", "wait", "sweep")
    assert (
        "An experiment has that name; wait for its runs: cloudml runs wait --experiment sweep"
        in (unlike.err)
    )
    for arguments in ((), ("lr-0", "-e", "sweep")):
        refused = server.cli("runs", "wait", *arguments)
        assert refused.code == 2
        assert "name runs, or an experiment with --experiment" in refused.err
    words = {"COMP_WORDS": "cloudml runs wait -e sw", "COMP_CWORD": "4"}
    completed = server.cli(_CLOUDML_COMPLETE="bash_complete", **words).good()
    assert completed.out == "plain,sweep\n"


@pytest.mark.slow
def test_who_waits_for_an_experiment_and_who_watches_it_outlive_a_restart(
    server: RealServer, client: CloudMlClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = client.runs.create("over-it", client.runs.ensure_experiment("restarted"))
    first = client.experiments.find("restarted")
    watcher = server.client().experiments.watch(after=first.revision)
    waiter, waits = server.client().experiments, threading.Event()
    active_runs = waiter.active_runs

    def active_runs_later(id_: str, **wait: Any) -> RunPage:
        if wait:
            waits.set()
        return active_runs(id_, **wait)

    monkeypatch.setattr(waiter, "active_runs", active_runs_later)
    with ThreadPoolExecutor(2) as pool:
        waited = pool.submit(waiter.wait, "restarted", 100)
        watched = pool.submit(next, watcher)
        assert waits.wait(60)
        server.kill()
        server.start()
        client.runs.finish(uid, "KILLED")
        assert waited.result() == first
        client.runs.create_experiment("after-it")
        assert watched.result().experiment.name == "after-it"
