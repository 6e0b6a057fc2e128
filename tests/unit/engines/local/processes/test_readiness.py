"""Waiting until something can be read, whatever number its descriptor has."""

from __future__ import annotations

import os
import resource
import socket

import pytest

from cloud_ml.engines.local.processes.readiness import find_readable


def test_what_can_be_read_or_has_no_other_end_is_found() -> None:
    here, there = socket.socketpair()
    reading, writing = os.pipe()
    try:
        assert find_readable([here, reading], 0) == []
        there.send(b"a")
        assert find_readable([here, reading], 0) == [here]
        os.close(writing)
        assert find_readable([reading]) == [reading]
    finally:
        here.close()
        there.close()
        os.close(reading)


def test_descriptors_may_be_many() -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if most < 1100:
        pytest.skip("this process may not have so many descriptors")
    reading, writing = os.pipe()
    high = os.dup2(reading, 1090)
    try:
        os.write(writing, b"a")
        assert find_readable([high], 1.0) == [high]
    finally:
        for number in (high, reading, writing):
            os.close(number)
