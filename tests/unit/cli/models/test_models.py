"""``cloudml models`` without a server."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

from click.testing import CliRunner

from cloud_ml.cli.models.group import delete
from cloud_ml.cli.session import Session
from cloud_ml.errors import NotFound


def handle(name: str, version: str) -> Any:
    if version == "v9":
        raise NotFound(f"there is no model service {name} {version}")
    service = Mock(version=version)
    service.name = name
    return service


def test_several_versions_are_deleted_and_the_rest_goes_on_past_an_error() -> None:
    session = Session()
    session.__dict__["client"] = client = Mock()
    client.get_model_service.side_effect = handle
    ran = CliRunner().invoke(
        delete, ["linear", "v1", "v9", "v2"], obj=session, standalone_mode=False
    )
    assert ran.return_value == 1
    assert "linear v1 is being deleted\nlinear v2 is being deleted\n" in ran.output.replace(
        "cloudml: there is no model service linear v9 (code: not_found)\n", ""
    )
    assert [call.args for call in client.get_model_service.call_args_list] == [
        ("linear", "v1"),
        ("linear", "v9"),
        ("linear", "v2"),
    ]
