"""Settings of the gateway reach its process."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from cloud_ml.bootstrap.gateway_config import gateway_config
from cloud_ml.errors import InvalidRequest
from cloud_ml.gateway.config import GatewayConfig
from cloud_ml.settings import GatewaySettings, Settings, checks

_OTHER_VALUES = {
    bool: lambda value: not value,
    int: lambda value: value + 7,
    float: lambda value: value + 7.0,
}
SHARED = sorted(
    {each.name for each in dataclasses.fields(GatewayConfig)}
    & {
        each.name
        for each in dataclasses.fields(GatewaySettings)
        if each.type in ("int", "float", "bool")
    }
)


@pytest.mark.parametrize("name", SHARED)
def test_a_setting_reaches_the_configuration_of_the_process(name: str) -> None:
    default = getattr(GatewaySettings(), name)
    assert getattr(gateway_config(Settings()), name) == default
    value = _OTHER_VALUES[type(default)](default)
    changed: Any = {name: value}
    settings = Settings(gateway=dataclasses.replace(GatewaySettings(), **changed))
    assert getattr(gateway_config(settings), name) == value


def test_the_defaults_of_the_process_are_those_of_the_settings() -> None:
    assert len(SHARED) > 20
    for name in SHARED:
        assert getattr(GatewayConfig("", "", ""), name) == getattr(GatewaySettings(), name), name


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("replica_window_bytes", 65_535, "a number from 65536 to 2147483647"),
        ("replica_window_bytes", 2**31, "a number from 65536 to 2147483647"),
        ("replica_turn_units", 0, "a number from 1 up"),
        ("caller_turn_units", 0, "a number from 1 up"),
        ("replica_head_s", 0, "a number from 1 up"),
        ("caller_empty_frames", -1, "a number from 0 up"),
        ("caller_http2_window_bytes", 65_535, "a number from 65536 to 2147483647"),
        ("caller_http2_window_bytes", 2**31, "a number from 65536 to 2147483647"),
        ("caller_http2_streams", 0, "a number from 1 up"),
    ],
)
def test_a_bound_that_is_none_is_refused(name: str, value: int, allowed: str) -> None:
    changed: Any = {name: value}
    with pytest.raises(InvalidRequest, match=f"gateway.{name}.*{allowed}"):
        checks.check(Settings(gateway=dataclasses.replace(GatewaySettings(), **changed)))
