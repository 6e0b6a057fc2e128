"""Where the proxy listens."""

from __future__ import annotations

import socket

import pytest

from cloud_ml.optuna_proxy.program import listen


def test_both_addresses_of_loopback_are_taken() -> None:
    with socket.socket(socket.AF_INET6) as other:
        try:
            other.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no ::1")
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            listen(port)
    taken = listen(0)
    try:
        assert [each.getsockname()[0] for each in taken] == ["127.0.0.1", "::1"]
        assert len({each.getsockname()[1] for each in taken}) == 1
    finally:
        for each in taken:
            each.close()
