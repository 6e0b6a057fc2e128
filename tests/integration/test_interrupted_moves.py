"""``storage mv`` is killed at each of its steps: what it moves is always whole, at its source or
at its target.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from support.fake_api import FakeApi
from support.fake_server import ACCESS_KEY, SECRET_KEY, FakeServer, Reply, Seen, serving
from support.server import CLOUDML

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CONTENT = b"model" * 1000
OBJECT, OTHER = "fds://cloudml/runs/x", "fds://cloudml/kept/x"
MOST_STEPS = 20


class Killer:
    """Kills the program that moves when it has sent so many requests, before or after they are
    carried out.
    """

    def __init__(self, api: FakeApi, *, step: int, carried_out: bool) -> None:
        self._api = api
        self._left = step
        self._carried_out = carried_out
        self.killed = False
        self.process: subprocess.Popen[bytes] | None = None

    def __call__(self, seen: Seen) -> Reply:
        self._left -= 1
        if self._left:
            return self._api(seen)
        reply = self._api(seen) if self._carried_out else Reply(500)
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.killed = True
        return reply


def start(server: FakeServer, home: Path, source: str, target: str) -> subprocess.Popen[bytes]:
    names = {"ENDPOINT": server.endpoint, "ACCESS_KEY": ACCESS_KEY, "SECRET_KEY": SECRET_KEY}
    environment = {"PATH": os.environ["PATH"], "HOME": str(home)}
    environment |= {f"CLOUDML_{name}": value for name, value in names.items()}
    command = [str(CLOUDML), "storage", "mv", source, target]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def content_of(api: FakeApi, place: str) -> bytes | None:
    if place.startswith("fds://"):
        return api.objects.get(place)
    return Path(place).read_bytes() if Path(place).is_file() else None


@pytest.mark.parametrize("carried_out", [False, True], ids=["lost", "carried-out"])
@pytest.mark.parametrize("way", ["up", "down", "across"])
def test_a_move_that_is_killed_at_any_step_loses_nothing(
    tmp_path: Path, way: str, carried_out: bool
) -> None:
    for step in range(1, MOST_STEPS):
        here = str(tmp_path / f"{step}")
        source, target = {"up": (here, OBJECT), "down": (OBJECT, here), "across": (OBJECT, OTHER)}[
            way
        ]
        api = FakeApi()
        if way == "up":
            Path(source).write_bytes(CONTENT)
        else:
            api.objects[source] = CONTENT
        killer = Killer(api, step=step, carried_out=carried_out)
        with serving(killer) as server:
            killer.process = start(server, tmp_path, source, target)
            killer.process.wait()
            assert CONTENT in (content_of(api, source), content_of(api, target)), (
                f"lost at step {step}"
            )
            server.handler = api
            if content_of(api, source) is not None:
                again = start(server, tmp_path, source, target)
                assert again.wait() == 0
            assert (content_of(api, source), content_of(api, target)) == (None, CONTENT)
        if not killer.killed:
            assert step > 2, "a move has several steps"
            return
    raise AssertionError("a move has fewer steps")
