"""Acknowledged means kept: a writer is killed in the middle of its work, again and again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from cloud_ml.state.sql.store import SqlStateStore
from cloud_ml.testing.state.samples import WISH, Phase, said

WRITER = """
import sys, threading
from cloud_ml.state.sql.store import SqlStateStore
from cloud_ml.testing.state.samples import Phase, commit, event, make

url, prefix = sys.argv[1:]
store = SqlStateStore.open(url)
acknowledge = threading.Lock()

def work(thread):
    for number in range(10**9):
        made = commit(store, make(store, f"{prefix}-{thread}-{number}"), Phase.DONE, events=[event("done")])
        with acknowledge:
            sys.stdout.write(f"{made.key.uid} {made.revision}\\n")
            sys.stdout.flush()

for thread in range(4):
    threading.Thread(target=work, args=(thread,)).start()
"""


def write_until_killed(url: str, prefix: str, *, count: int) -> dict[str, int]:
    """The revisions acknowledged by a writer that is killed after ``count`` of them."""
    command = [sys.executable, "-c", WRITER, url, prefix]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(count)]
        writer.kill()
        lines += writer.stdout.readlines()
    return {uid: int(revision) for uid, revision in (line.split() for line in lines if line.endswith("\n"))}


def test_every_acknowledged_commit_survives_kill_9(url: str, path: Path) -> None:
    acknowledged: dict[str, int] = {}
    for number, count in enumerate((1, 50, 150)):
        acknowledged |= write_until_killed(url, f"round{number}", count=count)
        assert path.with_name("state.db-wal").exists()
        store = SqlStateStore.open(url, create=False)
        for uid, revision in acknowledged.items():
            record = store.get(WISH, uid)
            assert record is not None
            assert (record.revision, record.status.phase) == (revision, Phase.DONE)
            assert said(store, record) == ["done"]
        store.close()
    assert len(acknowledged) >= 201
