"""TensorBoard, unmodified, on a folder of a bucket: ``tensorboard --logdir fds://…``."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from support.client_environments import OURS, client_environment
from support.event_files import TUNED
from support.gateway_process import free_port
from support.server import RealServer, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_it_shows_the_scalars_of_a_folder(server: RealServer, tmp_path: Path) -> None:
    programs = client_environment("tensorboard", "tensorboard==2.21.0", f"{OURS}[tensorboard]")
    server.client().storage.create_bucket("boards")
    (script := tmp_path / "board.py").write_text(TUNED)
    for rate in ("0.1", "0.3"):
        made = ("jobs", "submit", "-W", str(script), "-n", f"board-{rate[2:]}")
        folder = ("--output-path", f"fds://boards/linear/{rate}")
        server.cli(*made, *folder, "--", "--learning_rate", rate).good()
    port = free_port()
    command = [programs / "tensorboard", "--logdir", "fds://boards/linear", "--port", str(port)]
    proof = {
        "CLOUDML_ENDPOINT": server.endpoint,
        "CLOUDML_ACCESS_KEY": server.credentials["access_key"],
        "CLOUDML_SECRET_KEY": server.credentials["secret_key"],
    }
    with (tmp_path / "said").open("wb") as output, subprocess.Popen(
        command, env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), **proof},
        stdout=output, stderr=output,
    ) as process:  # fmt: skip
        try:
            scalars_url = f"http://127.0.0.1:{port}/data/plugin/scalars"

            def tags() -> bool:
                assert process.poll() is None, (tmp_path / "said").read_text()
                try:
                    return len(_json(f"{scalars_url}/tags")) == 2
                except (urllib.error.URLError, ConnectionError):
                    return False

            eventually(tags, "both runs are shown", limit_s=120)
            points = _json(f"{scalars_url}/scalars?run=0.1&tag=training%2Fhptuning%2Fmetric")
            assert [step for _, step, _ in points] == [0, 10_000, 20_000]
            assert round(points[-1][2], 3) == 0.1
        finally:
            process.terminate()


def _json(url: str) -> list[list[float]]:
    with urllib.request.urlopen(url) as answer:
        found: list[list[float]] = json.load(answer)
        return found
