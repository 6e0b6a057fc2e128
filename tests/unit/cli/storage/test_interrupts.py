"""Ctrl-C while objects are copied."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cloud_ml.cli.storage.copy import perform
from cloud_ml.cli.storage.plan import Item, Plan


class _Transfers:
    parallel = 2


class _Store:
    """Its downloads take for ever, and tell how far they are."""

    transfers = _Transfers()

    def __init__(self) -> None:
        self.ended = threading.Semaphore(0)

    def download(
        self, uri: str, _place: Path, *, progress: Callable[[int, int | None], None]
    ) -> None:
        try:
            for done in range(10**9):
                progress(done, None)
        finally:
            self.ended.release()


def test_an_interrupt_ends_transfers_that_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_running: Any, **_more: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("cloud_ml.cli.storage.copy.wait", interrupt)
    store: Any = _Store()
    items = [Item(f"fds://b/{name}", str(tmp_path / name), 10**9) for name in "ab"]
    with pytest.raises(KeyboardInterrupt):
        perform(store, Plan(items))
    assert store.ended.acquire(timeout=10)
    assert store.ended.acquire(timeout=10)
