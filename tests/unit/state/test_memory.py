"""The fake's own gift: it fails on command."""

from __future__ import annotations

import pytest

from cloud_ml.errors import OutOfSpace
from cloud_ml.state.memory import MemoryStateStore
from cloud_ml.testing.state.samples import SAMPLE, commit, make


def test_writes_fail_until_told_otherwise_and_reads_go_on() -> None:
    store = MemoryStateStore()
    made = make(store)
    store.fail_writes(OutOfSpace("full"))
    with pytest.raises(OutOfSpace, match="full"):
        commit(store, made)
    with pytest.raises(OutOfSpace, match="full"):
        make(store, "two")
    assert store.get(SAMPLE, made.key.uid) == made
    store.fail_writes(None)
    commit(store, made)
