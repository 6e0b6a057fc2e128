"""``cloudml models`` without a server."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from click.testing import CliRunner

from cloud_ml.cli.models.group import delete, models
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


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        (("lin", "job1:out"), "cloudml models update lin -u job1:out"),
        (("lin", "./export", "-r", "2"), "cloudml models update lin -u ./export"),
        (("lin", "v1", "job1:out"), "cloudml models update lin v1 -u job1:out"),
    ],
)
def test_a_model_that_is_given_as_a_word_is_named_with_its_option(
    words: tuple[str, ...], suggestion: str
) -> None:
    refused = CliRunner().invoke(models, ["update", *words], obj=Session())
    assert refused.exit_code == 2
    assert f"is one word too many; to serve another model: {suggestion}\n" in refused.stderr
