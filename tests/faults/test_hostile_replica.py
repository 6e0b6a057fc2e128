"""A service whose replica is hostile, beside an honest one in the same gateway, whose callers
must not notice.
"""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cloud_ml.domain.services.routes import Route
from support.fairness import Latency
from support.gateway_process import TESTS, GatewayProcess, environment, free_port, honest_replica
from support.hostile_replica import BEHAVIOURS, CALLERS
from support.replica_sockets import backend, replica_folder
from support.server import eventually

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("hostile")]

MESSAGE_BYTES = 4 << 20
TIMEOUT_S, WAITING_S, SECONDS_TO_SPARE = 6.0, 0.5, 12.0
MEMORY_BYTES = 96 << 20
"""What the gateway may grow by: callers times the largest answer, and some."""
ROUNDS = 12


class Hostile:
    """The process of hostile replicas and of their callers."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "support.hostile_replica"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=TESTS, env=environment()
        )
        self.outcomes: dict[str, list[tuple[str, float]]] = {}

    def begin(self, name: str, folder: Path, port: int) -> None:
        self._order({"begin": name, "folder": str(folder), "port": port})
        while "begun" not in self._read():
            pass

    def end(self, name: str, *, at_once: bool) -> None:
        """Its callers end after the call that they are in, or at once."""
        self._order({"cut" if at_once else "end": name})

    def wait(self, name: str) -> list[tuple[str, float]]:
        """The outcomes of all calls of a behaviour, once they have ended."""
        while name not in self.outcomes:
            self._read()
        return self.outcomes.pop(name)

    def _order(self, order: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        if "ended" in found:
            self.outcomes[found["ended"]] = [(how, seconds) for how, seconds in found["outcomes"]]
        return found

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class Scene:
    """A gateway with an honest service, and the process of hostile replicas."""

    def __init__(self, gateway: GatewayProcess, hostile: Hostile, port: int, folder: Path) -> None:
        self.gateway = gateway
        self.hostile = hostile
        self.folder = folder
        self._honest = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._number = 0

    def close(self) -> None:
        self._honest.close()

    def call(self) -> float:
        """Seconds that a call of the honest service takes."""
        begun = time.perf_counter()
        self._honest.request("POST", "/v1/models/m:predict", b'{"instances": [1]}')
        answer = self._honest.getresponse()
        assert (answer.status, answer.read()) == (200, b'{"instances": [1]}')
        return time.perf_counter() - begun

    def begin(self, name: str) -> str:
        """Have a behaviour's replica serve a new service and its callers call it; the service's
        uid.
        """
        self._number += 1
        uid, port = f"h{self._number}", free_port()
        folder = replica_folder(self.folder, uid)
        self.gateway.tell({uid: Route(port, "hostile", name, open=True, backends=(backend(uid),))})
        self.hostile.begin(name, folder, port)
        return uid

    def cut(self, name: str, uid: str) -> None:
        """End a behaviour at once, and its service."""
        self.hostile.end(name, at_once=True)
        self.hostile.wait(name)
        self.gateway.tell({}, drop=(uid,))


@dataclass(frozen=True)
class Seen:
    """What became of the callers of a hostile replica, and how often the gateway closed a
    connection to it.
    """

    outcomes: list[tuple[str, float]]
    hung_up: int


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    folder = Path(tempfile.mkdtemp(prefix="gw-"))  # paths of sockets are short
    port = free_port()
    hostile = Hostile()
    config = {
        "message_limit_bytes": MESSAGE_BYTES,
        "timeout_s": TIMEOUT_S,
        "waiting_s": WAITING_S,
    }
    try:
        with (
            honest_replica(replica_folder(folder, "honest")),
            GatewayProcess(folder, **config) as gateway,
        ):
            backends = (backend("honest"),)
            gateway.tell(
                {"honest": Route(port, "others", "honest/v1", open=True, backends=backends)}
            )
            scene = Scene(gateway, hostile, port, folder)
            yield scene
            scene.close()
    finally:
        hostile.close()
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def together(scene: Scene) -> dict[str, Seen]:
    """One call by each caller of each of them, all at once."""
    before = scene.gateway.memory()
    scene.gateway.forget_peak()
    uids = {name: scene.begin(name) for name in sorted(BEHAVIOURS)}
    for name in uids:
        scene.hostile.end(name, at_once=False)
    outcomes = {name: scene.hostile.wait(name) for name in uids}
    found = {
        name: Seen(outcomes[name], scene.gateway.figures(uid).get("hung_up", 0))
        for name, uid in uids.items()
    }
    scene.gateway.tell({}, drop=tuple(uids.values()))
    assert scene.gateway.memory("VmHWM") - before < MEMORY_BYTES
    return found


@pytest.mark.parametrize("name", sorted(BEHAVIOURS))
def test_callers_get_an_error_in_bounded_time(together: dict[str, Seen], name: str) -> None:
    """And a replica that breaks a rule or a bound is hung up on."""
    behaviour, seen = BEHAVIOURS[name], together[name]
    assert seen.outcomes
    assert (
        max(seconds for _, seconds in seen.outcomes) < TIMEOUT_S + WAITING_S + SECONDS_TO_SPARE
    ), seen
    if behaviour.error:
        assert not {"0", "200"} & {how for how, _ in seen.outcomes}, seen
    if behaviour.hung_up:
        assert seen.hung_up


@pytest.mark.alone
@pytest.mark.parametrize("name", sorted(BEHAVIOURS))
def test_others_go_on(scene: Scene, name: str) -> None:
    """Their calls take at most twice as long as before, and memory is bounded."""
    seen = []
    before = scene.gateway.memory()
    scene.gateway.forget_peak()
    for _ in range(ROUNDS):  # a busy machine spoils some rounds; an attack spoils them all
        quiet = Latency.of(scene.call)
        uid = scene.begin(name)
        loud = Latency.of(scene.call)
        scene.cut(name, uid)
        seen.append((quiet, loud))
        assert scene.gateway.memory("VmHWM") - before < MEMORY_BYTES
        if not loud.harmed(quiet):
            return
    raise AssertionError(f"calls of others, quiet and beside it: {seen}")


@pytest.mark.parametrize("name", ["silence", "a_head_and_no_more"])
def test_the_call_of_a_caller_who_left_ends(scene: Scene, name: str) -> None:
    """Long before its deadline, over both protocols."""
    uid = scene.begin(name)
    eventually(
        lambda: scene.gateway.figures(uid)["in_flight"] == CALLERS, "all calls are under way"
    )
    scene.hostile.end(name, at_once=True)
    scene.hostile.wait(name)
    begun = time.monotonic()
    eventually(lambda: scene.gateway.figures(uid)["in_flight"] == 0, "they have ended")
    assert time.monotonic() - begun < TIMEOUT_S - 1
    scene.gateway.tell({}, drop=(uid,))
