"""The server is killed at random moments under load, ``FAULTS_KILLS`` times: nothing is lost, twice
or backwards.

A thousand by hand: ``FAULTS_KILLS=1000 make faults``; a few otherwise. ``FAULTS_KILLS_S`` ends it
sooner.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from soak.load import Load
from support import invariants
from support.environments import pack
from support.machine import spawner_pid
from support.server import serving, trainer

KILLS = int(os.environ.get("FAULTS_KILLS", "15"))
LIMIT_S = float(os.environ.get("FAULTS_KILLS_S", "inf"))
SPAWNER_EVERY = 5


@pytest.mark.timeout(600 + 60 * KILLS)
def test_killed_at_random_moments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Now and then the spawner dies with the server."""
    luck = random.Random(2016)
    settings = {"CLOUDML_ENGINE_STOP_GRACE_S": 1, "CLOUDML_CONTROLLER_MAX_RUNNING_JOBS": 4}
    folder = tmp_path / "server"
    folder.mkdir()
    with serving(folder, **settings) as server:
        file = pack(trainer(tmp_path / "code", invariants.WITNESS), tmp_path / "witness-1.0.tar.gz")
        server.client().storage.upload(file, "fds://cloudml/witness-1.0.tar.gz")
        load = Load(server, "fds://cloudml/witness-1.0.tar.gz", rate=3, most_open=12)
        load.start()
        ends, done = time.monotonic() + LIMIT_S, 0
        for kill in range(KILLS):
            if time.monotonic() >= ends:
                break
            done = kill + 1
            time.sleep(luck.uniform(0.0, 1.0))  # the random moment that this test is about
            server.kill()
            if kill % SPAWNER_EVERY == 0 and spawner_pid(server.data / "engine"):
                server.kill_spawner()
            server.start()
            if kill % 50 == 49:
                with capsys.disabled():
                    print(
                        f"\n{kill + 1} kills, {dict(load.done)}, {len(load.wrong)} wrong",
                        flush=True,
                    )
        load.stop(300)
        assert load.wrong == [], dict(load.done)
        assert load.done["collected"] >= done // 3
        assert invariants.left_behind(server) == []
        with capsys.disabled():
            print(
                f"\n{done} kills: {load.done['submitted']} jobs acknowledged, all ended once "
                "and whole",
                flush=True,
            )
