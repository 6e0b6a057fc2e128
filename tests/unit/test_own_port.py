"""A server says that a port for model services is its own."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from cloud_ml.server import warn_of_own_port
from cloud_ml.settings import Settings


@pytest.mark.parametrize(
    ("port", "ports", "warns"),
    [
        (8951, "8951,8985-8986", True),
        (8985, "8900-8990", True),
        (8471, "8600-8999", False),
        (0, "8600-8999", False),
    ],
)
def test_its_own_port_among_those_of_services_is_told(
    port: int, ports: str, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings()
    settings = replace(
        settings,
        server=replace(settings.server, port=port),
        gateway=replace(settings.gateway, ports=ports),
    )
    with caplog.at_level(logging.WARNING):
        warn_of_own_port(settings)
    assert ("no model service gets this port" in caplog.text) is warns
