"""Optuna, as it is published, in an environment of its own, and a proxy of a user."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.client_environments import client_environment
from support.server import RealServer

VERSION = "5.0.0"
OLDER = ("4.2.0", "4.9.0")
"""The first version that has the client, and the last one of its kind."""
DASHBOARD = "optuna-dashboard==0.21.0"
_NEEDED = ("grpcio==1.85.3", "protobuf==7.36.2")
PACKAGES = (f"optuna=={VERSION}", *_NEEDED)
"""What a job needs, beside the proxy."""


def install(version: str = VERSION, *more: str) -> Path:
    """The interpreter of an environment with Optuna. Skips the test where it cannot be fetched."""
    name = "optuna-client" if version == VERSION and not more else "optuna-client-other"
    try:
        return client_environment(name, f"optuna=={version}", *_NEEDED, *more) / "python"
    except subprocess.CalledProcessError:
        pytest.skip(f"the package index does not give Optuna {version} {' '.join(more)}".rstrip())


def install_dashboard() -> Path:
    """The interpreter of an environment with Optuna Dashboard."""
    return install(OLDER[-1], DASHBOARD)


class OptunaClient:
    """Runs scripts with Optuna against a proxy. ``storage`` is there in each of them.

    Args:
        python: The interpreter.
        port: Of the proxy.
        home: Where scripts run.
    """

    def __init__(self, python: Path, port: int, home: Path) -> None:
        self._python = python
        self.port = port
        self.home = home

    def __call__(self, script: str) -> str:
        """What a script prints. It must succeed."""
        with self.started(script) as process:
            out, err = process.communicate(timeout=120)
        assert process.returncode == 0, out + err
        return out

    @contextlib.contextmanager
    def started(self, script: str) -> Iterator[subprocess.Popen[str]]:
        """Start a script, whose output can be read. It is killed at the end of the block."""
        process = subprocess.Popen(
            [str(self._python), "-W", "ignore", "-c", _BEGIN.format(port=self.port) + script],
            cwd=self.home,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


_BEGIN = """
import json, sys
import optuna
optuna.logging.set_verbosity(optuna.logging.ERROR)
storage = optuna.storages.GrpcStorageProxy(host="localhost", port={port})
"""


@contextlib.contextmanager
def proxy(server: RealServer, *options: str) -> Iterator[int]:
    """The port of ``cloudml hp proxy`` while it runs."""
    process = server.spawn("hp", "proxy", *options)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("storage = optuna.storages.GrpcStorageProxy("), line
        yield int(line.rpartition("port=")[2].rstrip(")\n"))
    finally:
        process.terminate()
        process.communicate()
