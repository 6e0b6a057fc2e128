"""The spawner's program: the configuration comes as JSON on standard input, ``ready`` goes to
standard output.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from pathlib import Path

from cloud_ml import failpoints
from cloud_ml.engines.local.config import LocalConfig
from cloud_ml.engines.local.spawner import fences, requests
from cloud_ml.engines.local.spawner.loop import Spawner
from cloud_ml.models import codec


def main() -> None:
    """Become the spawner of a data folder."""
    failpoints.arm(os.environ)
    config = codec.decode(LocalConfig, json.load(sys.stdin))
    root = Path(config.root)
    lock = os.open(root / "spawner.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    # One spawner at a time. A record lock, since a flock would be inherited by the supervisors.
    fcntl.lockf(lock, fcntl.LOCK_EX)
    os.ftruncate(lock, 0)
    os.write(lock, str(os.getpid()).encode())
    listener = requests.listen(root)
    spawner = Spawner(config, listener, fences.start(config))
    print("ready", flush=True)  # noqa: T201 - the server waits for this line
    # The pipe has no reader after this line, so a later print would fail. open(2) uses the lowest
    # free number, so the next file becomes standard output, also for supervisors.
    os.close(1)
    os.open(os.devnull, os.O_WRONLY)
    spawner.run()


if __name__ == "__main__":
    main()
