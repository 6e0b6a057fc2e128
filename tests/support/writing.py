"""Processes that write to a store until they are killed."""

from __future__ import annotations

import subprocess
import sys

from cloud_ml.state.base import StateStore
from cloud_ml.testing.state.samples import SAMPLE, Phase, list_messages

_WRITER = """
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


class WritingProcess:
    """A process with four threads that make records in the database at ``url``, as fast as they
    can.
    """

    def __init__(self, url: str, prefix: str) -> None:
        self.acknowledged: dict[str, int] = {}
        """The revisions of the records whose writing was acknowledged, as far as it was read."""
        command = [sys.executable, "-c", _WRITER, url, prefix]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def read(self, count: int) -> None:
        """Wait for so many acknowledgements."""
        assert self._process.stdout is not None
        self._note([self._process.stdout.readline() for _ in range(count)])

    def kill(self) -> None:
        """SIGKILL in the middle of the work; everything acknowledged until then is read."""
        with self._process as process:
            process.kill()
            assert process.stdout is not None
            self._note(process.stdout.readlines())

    def _note(self, lines: list[str]) -> None:
        for line in lines:
            if line.endswith("\n"):
                uid, revision = line.split()
                self.acknowledged[uid] = int(revision)


def check_kept(store: StateStore, acknowledged: dict[str, int]) -> None:
    """Every record that was acknowledged is there as it was, with its event."""
    for uid, revision in acknowledged.items():
        record = store.get(SAMPLE, uid)
        assert record is not None
        assert (record.revision, record.status.phase) == (revision, Phase.DONE)
        assert list_messages(store, record) == ["done"]
