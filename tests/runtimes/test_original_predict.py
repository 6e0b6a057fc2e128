"""``cloudml models predict`` of the original client, unmodified, with the TensorFlow that it
imports.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.original import OriginalClient, Tunnel, install
from support.server import serving
from support.serving import SLIDES_DATA, slides_model

pytestmark = [pytest.mark.slow, pytest.mark.runtimes, pytest.mark.timeout(900)]

NEEDED = ("tensorflow==1.15.5", "protobuf<3.21", "grpcio<1.50", "numpy<1.20")
"""The last of those that have what it imports: ``tf.app``, ``grpc.beta``, messages made by an
old compiler.
"""


def test_it_reads_what_the_platform_answers(tmp_path: Path) -> None:
    programs = install(("3.7",), NEEDED)
    (tmp_path / "server").mkdir()
    with serving(tmp_path / "server") as server:
        slides_model(server.user_home / "export")
        server.cli(
            "models", "deploy", "linear", "v1", "./export", "--access", "open", "-W", timeout_s=120
        ).good()
        home = tmp_path / "home"
        home.mkdir()
        (home / "data.json").write_text(SLIDES_DATA)
        tunnel = Tunnel(server.port)
        client = OriginalClient(programs, server, home, home / "none.pem", tunnel)
        answer = (
            client("models", "predict", "-n", "linear", "-v", "v1", "-f", "data.json").good().out
        )
        tunnel.close()
    values = sorted(re.findall(r"(keys_out|predict): ([0-9.]+)", answer))
    assert values == [
        ("keys_out", "1"),
        ("keys_out", "2"),
        ("predict", "30.0"),
        ("predict", "70.0"),
    ], answer
