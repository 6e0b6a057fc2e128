"""``cloudml doctor`` as an operator calls it."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.server import RealServer


@pytest.mark.slow
def test_beside_a_running_server_everything_is_found(server: RealServer) -> None:
    ran = server.cli(
        "doctor", "--data-dir", str(server.data), "-o", "json", CLOUDML_SERVER_PORT=str(server.port)
    ).good()
    found = {(one["area"], one["name"]): one for one in ran.json()}
    assert found["network", "address"]["says"].endswith("a server of ours answers")
    assert "this version's" in found["database", "schema"]["says"]
    assert found["client", "key"]["says"] == "admin of default, admin"
    assert found["storage", "data"]["says"] == str(server.data)


def test_what_does_not_work_is_told_with_the_way_out_and_an_exit_code(
    server: RealServer, tmp_path: Path
) -> None:
    ran = server.cli(
        "doctor", "network", "--data-dir", str(tmp_path / "data"), CLOUDML_SERVER_HOST="0.0.0.0"
    )
    assert ran.code == 1
    assert "→ --tls-cert and --tls-key, or --behind-proxy" in ran.out
    assert "1 problem to fix first" in ran.out
    assert "isolation" not in ran.out, "only what was asked for"
    assert server.cli("doctor", "weather").code == 2
    assert not (tmp_path / "data").exists(), "looking changes nothing"
