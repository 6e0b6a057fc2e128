"""MLflow's client, as it is published, in an environment of its own beside a real server."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from support.client_environments import client_environment
from support.server import RealServer

PACKAGE = "mlflow-skinny==3.17.2"


def install() -> Path:
    """The interpreter of an environment with the client."""
    return client_environment("mlflow-client", PACKAGE) / "python"


class MlflowClient:
    """Runs scripts with the client, as a user whose key is that of the operator."""

    def __init__(self, python: Path, server: RealServer, home: Path) -> None:
        self._python = python
        self._server = server
        self.home = home

    def __call__(self, script: str, *, token: str = "", **variables: str) -> str:
        """What a script prints. It must succeed."""
        ran = self.run(script, token=token, **variables)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    def run(
        self, script: str, *, token: str = "", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a script, with user and password, or with a token."""
        return subprocess.run(  # noqa: PLW1510 - who asks looks
            [str(self._python), "-c", script],
            env=self._environment(token, variables),
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=120,
        )

    @contextlib.contextmanager
    def started(self, script: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
        """Start a script, whose output can be read. It is killed at the end of the block."""
        process = subprocess.Popen(
            [str(self._python), "-c", script],
            env=self._environment("", variables),
            cwd=self.home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def _environment(self, token: str, variables: Mapping[str, str]) -> dict[str, str]:
        keys = self._server.credentials
        proof = {
            "MLFLOW_TRACKING_USERNAME": keys["access_key"],
            "MLFLOW_TRACKING_PASSWORD": keys["secret_key"],
        }
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "MLFLOW_TRACKING_URI": f"{self._server.endpoint}/mlflow",
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            **({"MLFLOW_TRACKING_TOKEN": token} if token else proof),
            **variables,
        }
