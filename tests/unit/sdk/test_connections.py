"""Connections that are kept open between requests."""

from __future__ import annotations

import gc
import socket

from cloud_ml.sdk.connections import ConnectionPool
from cloud_ml.sdk.endpoint import parse_endpoint


def test_a_pool_that_is_dropped_closes_its_connections() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = parse_endpoint(f"http://127.0.0.1:{server.getsockname()[1]}")
        pool = ConnectionPool(endpoint, connect_timeout_s=60)
        connection = pool.acquire(read_timeout_s=60)
        sock = connection.wire.sock
        pool.release(connection)
        del connection, pool
        gc.collect()
        assert sock.fileno() == -1
