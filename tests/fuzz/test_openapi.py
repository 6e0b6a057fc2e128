"""A real server, and requests made up from what it says of itself: `make test-api-fuzz`.

``CLOUDML_FUZZ_S`` is how long it goes on; with ``FUZZ_RUNS`` each operation gets the same requests
every time instead.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.server import RealServer, serving, trainer

SECONDS = int(os.environ.get("CLOUDML_FUZZ_S", "40"))
EXAMPLES = 20
SCHEMATHESIS = Path(sys.executable).parent / "schemathesis"
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RealServer]:
    quick = {
        "CLOUDML_API_LONG_POLL_LIMIT_S": 1,
        "CLOUDML_API_STREAM_LIMIT_S": 1,
        "CLOUDML_API_HEARTBEAT_S": 0.1,
    }
    (tmp_path / "server").mkdir()
    with serving(tmp_path / "server", **quick) as server:
        yield server


def _extent() -> list[str]:
    if os.environ.get("FUZZ_RUNS", "0") != "0":
        return ["--generation-deterministic", "--seed", "2016", "--max-examples", str(EXAMPLES)]
    return ["--max-time", str(SECONDS)]


@pytest.mark.skipif(
    not SCHEMATHESIS.exists(), reason="schemathesis is not installed; make test-api-fuzz does it"
)
@pytest.mark.timeout(SECONDS + 1200)
def test_the_server_is_what_it_says_and_never_at_fault(server: RealServer, tmp_path: Path) -> None:
    code = trainer(tmp_path / "linear", "print('hello')\n")
    server.cli(
        "jobs", "submit", "-n", "linear", "-m", "trainer.task", "-u", str(code), "-W", timeout_s=180
    )
    keys = server.credentials
    ran = subprocess.run(
        [
            str(SCHEMATHESIS),
            "run",
            f"{server.endpoint}/api/v1/openapi.json",
            "--url",
            server.endpoint,
            "--checks",
            CHECKS,
            *_extent(),
            "--continue-on-failure",
            "--phases",
            "coverage,fuzzing",
            "--request-timeout",
            "20",
            "--suppress-health-check",
            "all",
            "--warnings",
            "off",
        ],
        env={
            **server.environment(tmp_path),
            "SCHEMATHESIS_HOOKS": "fuzz.signing",
            "PYTHONPATH": str(Path(__file__).parents[1]),
            "CLOUDML_ACCESS_KEY": keys["access_key"],
            "CLOUDML_SECRET_KEY": keys["secret_key"],
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    faults = [
        line
        for line in server.log().splitlines()
        if "failed:" in line or '"level": "error"' in line
    ]
    assert ran.returncode == 0, ran.stdout[-20_000:] + ran.stderr[-2000:]
    assert not faults
