"""Acknowledged means kept: a writer is killed in the middle of its work, again and again."""

from __future__ import annotations

from pathlib import Path

from cloud_ml.state.sql.store import SqlStateStore
from support.writing import WritingProcess, check_kept


def test_every_acknowledged_commit_survives_kill_9(url: str, path: Path) -> None:
    acknowledged: dict[str, int] = {}
    for number, count in enumerate((1, 50, 150)):
        writer = WritingProcess(url, f"round{number}")
        writer.read(count)
        writer.kill()
        acknowledged |= writer.acknowledged
        assert path.with_name("state.db-wal").exists()
        store = SqlStateStore.open(url, create=False)
        check_kept(store, acknowledged)
        store.close()
    assert len(acknowledged) >= 201
