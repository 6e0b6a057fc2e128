"""RFC 9113 and RFC 7541 at the model server and at the gateway, over real sockets; see
``support.http2_cases``.
"""

from __future__ import annotations

import pytest

from support.http2_cases import CASES
from support.http2_peer import Peer


@pytest.mark.parametrize("server", ["model server", "gateway"])
@pytest.mark.parametrize("name", sorted(CASES))
def test_http2(ports: dict[str, int], server: str, name: str) -> None:
    with Peer(ports[server]) as peer:
        CASES[name](peer)
