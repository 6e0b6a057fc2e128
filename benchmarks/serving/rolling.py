"""Calls of a service for a minute, while its versions roll, replicas are killed and the server dies
and comes again.

    make test-rolling [ROLLING_S=60]
    python benchmarks/serving/rolling.py [SECONDS]

Each of the three happens at least once, however short it is. Half of the callers speak gRPC and
half HTTP, each with the next call as soon as it has an answer; every answer is compared. Ends with
1 if one call failed, and with 0 and why where the machine cannot make a replica. Takes a server of
its own, in a folder that goes away.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.calling import Load, calling, token_of
from support.server import RealServer, serving
from support.services import ServiceApi, running
from support.serving import save_linear


def roll(api: ServiceApi, _: RealServer, turn: int) -> str:
    api("PATCH", "/linear/v1", {"environment": {"TURN": str(turn)}})
    api.until("/linear/v1", running(2))
    return "rolled"


def kill_a_replica(api: ServiceApi, server: RealServer, turn: int) -> str:
    replica = api("GET", "/linear/v1")["replicas"][turn % 2]
    processes = server.processes_of(replica["uid"], replica["attempt"])
    os.kill(processes[0], signal.SIGKILL)
    api.until(
        "/linear/v1",
        lambda one: running(2)(one) and replica["attempt"] not in _attempts(one, replica["uid"]),
    )
    return "a replica killed, and back"


def kill_the_server(api: ServiceApi, server: RealServer, _: int) -> str:
    server.kill()
    server.start()
    api.until("/linear/v1", running(2))
    return "server killed, and back"


TURNS = (roll, kill_a_replica, kill_the_server)


def _attempts(service: Any, uid: str) -> list[int]:
    return [each["attempt"] for each in service["replicas"] if each["uid"] == uid]


def main(seconds: float) -> int:
    with tempfile.TemporaryDirectory() as folder, serving(_made(Path(folder) / "server")) as server:
        save_linear(server.folder / "linear")
        model = server.folder / "linear" / "model.onnx"
        server.client().storage.upload(model, "fds://cloudml/linear/1/model.onnx")
        api = ServiceApi(server)
        api(
            "POST",
            "",
            {
                "model_name": "linear",
                "model_version": "v1",
                "model_uri": "fds://cloudml/linear",
                "replicas": 2,
            },
        )
        service = api.until(
            "/linear/v1", lambda one: running(2)(one) or one["reason"] == "EnvironmentFailed"
        )
        if service["reason"] == "EnvironmentFailed":
            print(f"skipped: the packages of a replica cannot be had here: {service['message']}")
            return 0
        address = service["address"]
        began, turn = time.monotonic(), 0
        with calling(address, token_of(server.credentials), callers=8, pause_s=0.0) as load:
            while time.monotonic() - began < seconds or turn < len(TURNS):
                what = TURNS[turn % len(TURNS)](api, server, turn)
                turn += 1
                print(f"{time.monotonic() - began:6.1f} s  {what:30}{_line(load)}", flush=True)
        took = time.monotonic() - began
    print(f"{took:6.1f} s  {load.total / took:.0f} calls a second; {_line(load)}")
    for failure in load.failed[:5]:
        print("  " + failure)
    assert all(load.answers.values()), f"callers got no answers: {load.answers}"
    return bool(load.failed)


def _line(load: Load) -> str:
    return (
        f"{load.total:7} calls, {len(load.failed)} failed, slowest {load.slowest_s * 1000:.0f} ms"
    )


def _made(folder: Path) -> Path:
    folder.parent.chmod(0o755)  # users of jobs have their working folders below
    folder.mkdir()
    return folder


if __name__ == "__main__":
    try:
        raise SystemExit(
            main(float(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ROLLING_S", "60")))
        )
    except pytest.skip.Exception as reason:
        print(f"skipped: {reason}")
