"""Which processes ``cloudml server stop`` ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from cloud_ml import lock_file
from cloud_ml.settings import load
from cloud_ml.shutdown import Shutdown

SERVER = """
import fcntl, os, signal, sys
lock = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_APPEND)
fcntl.flock(lock, fcntl.LOCK_SH)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
if sys.argv[2:]:
    os.write(lock, f"{os.getpid()}\\n".encode())
print(flush=True)
signal.sigwait([signal.SIGTERM])
for pid in sys.argv[2:]:
    os.write(lock, f"{pid}\\n".encode())
"""


def _start(*arguments: object) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, *map(str, arguments)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"\n"
    return process


def test_a_server_that_is_not_in_the_lock_file_yet_is_stopped_too(tmp_path: Path) -> None:
    lock = tmp_path / lock_file.NAME
    with _start(lock) as late, _start(lock, late.pid) as first:
        try:
            stopped = Shutdown(load(options={"server": {"data_dir": str(tmp_path)}})).stop_servers(
                30
            )
        finally:
            for process in (first, late):
                process.send_signal(signal.SIGKILL)
    assert stopped == [first.pid, late.pid]
    assert [first.returncode, late.returncode] == [0, 0]
