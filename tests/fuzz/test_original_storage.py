"""The original storage client, driven by luck, against a real server: see
``original_storage.py``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_ml.client import CloudMlClient
from support.server import RealServer, serving

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(7200),
    pytest.mark.xdist_group("original-storage"),
]

PROGRAM = Path(__file__).with_name("original_storage.py")
SECONDS = os.environ.get("FUZZ_S", "20")
SEED = os.environ.get("FUZZ_SEED", "1")
PACKAGES = ("galaxy-fds-sdk==1.4.44", "requests<3", "argcomplete<2", "click<9", "crcmod<2")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has the original client."""
    folder = tmp_path_factory.mktemp("original")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    found = folder / "bin" / "python"
    pip = [str(found), "-m", "pip", "--disable-pip-version-check", "install", "-q", *PACKAGES]
    if (ended := subprocess.run(pip, capture_output=True, text=True, check=False)).returncode:
        pytest.skip(f"the original storage client cannot be installed here: {ended.stderr[-300:]}")
    return found


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[RealServer]:
    """A server with two buckets of the caller's and one of somebody else's."""
    with serving(tmp_path) as server, server.client() as client:
        for bucket in ("fuzz-a", "fuzz-b"):
            client.storage.create_bucket(bucket)
        client.admin.create_org("stranger", default_bucket="others")
        client.admin.create_user("sam", role="owner", org="stranger")
        key = client.admin.create_key("sam", org="stranger")
        with CloudMlClient(key.key.access_key, key.secret_key, server.endpoint) as stranger:
            stranger.storage.upload(b"secret", "fds://others/a")
        yield server


def test_what_the_original_client_asks_for_is_done_or_refused(
    shared: RealServer, python: Path
) -> None:
    key, address = shared.credentials, shared.endpoint.removeprefix("http://")
    command = [
        str(python),
        str(PROGRAM),
        address,
        key["access_key"],
        key["secret_key"],
        SECONDS,
        SEED,
    ]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-5000:]
    assert (shared.data / "objects" / "others" / "a").read_bytes() == b"secret"
