"""Whether the command line of the operator talks to the server that has just started."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from cloud_ml.cli.server.group import _is_known_to_user
from cloud_ml.sdk.config import Context, write_context

HERE = "http://127.0.0.1:9443"


@pytest.mark.parametrize(
    ("context", "known"),
    [
        (Context(HERE, "AKTHIS", "secret"), True),
        (Context(HERE, "AKOTHER", "secret"), False),
        (Context(HERE, token="cmt_token"), True),
        (Context("http://elsewhere:9443", token="cmt_token"), False),
    ],
)
def test_a_key_of_this_server_or_a_token_for_it(
    context: Context, known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.json"
    monkeypatch.setenv("CLOUDML_CONFIG", str(path))
    write_context("default", context, path=path)
    running = Mock()
    running.platform.identities.find = lambda key: key == "AKTHIS" or None
    assert _is_known_to_user(HERE, running) is known
