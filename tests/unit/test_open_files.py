"""A server has as many open files as the system allows, takes no more connections than that, and
leaves jobs theirs.
"""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from cloud_ml import open_files
from cloud_ml.server import fit_connections
from cloud_ml.settings import Settings

RAISED = """
import os, resource, subprocess, sys
from pathlib import Path
from cloud_ml import open_files
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 300))
print(open_files.raise_limit(), resource.getrlimit(resource.RLIMIT_NOFILE))
with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
    open_files.restore_limit(child.pid)
    print(resource.prlimit(child.pid, resource.RLIMIT_NOFILE))
"""


def test_it_is_raised_for_the_server_and_not_for_what_it_starts() -> None:
    done = subprocess.run(
        [sys.executable, "-c", RAISED], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["300 (300, 300)", "(200, 300)"]


def test_no_more_connections_are_taken_than_can_be_open(caplog: pytest.LogCaptureFixture) -> None:
    """With 1,024 open files one organisation's requests took them all, and nobody else was
    answered.
    """
    with caplog.at_level(logging.WARNING):
        fitted = fit_connections(Settings(), 1024)
    assert (fitted.server.connections, fitted.api.requests_per_org) == (384, 192)
    assert "the server takes 384 connections and not 2000" in caplog.text
    assert fit_connections(Settings(), 4096 + 256) == Settings()
    assert open_files.connections_that_fit(0) == 1
