"""The loop of a tuner's process: a JSON document on a line comes in, one goes out.

The process has no rights, no keys and no files: what it knows of a study is in the request. It ends
when its input does.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any

from cloud_ml.linux import die_with_parent, forbid_new_privileges
from cloud_ml.tuning.known_studies import ReceivedStudies

Answer = Callable[[dict[str, Any], ReceivedStudies], dict[str, Any]]
_NICE = 5
_FILES = 16


def run(answer: Answer, warm_up: Callable[[], None]) -> int:
    """Give up what is not needed, then answer one request after another."""
    parent, memory, user = map(int, sys.argv[1:])
    warm_up()  # as modules that are loaded late may be out of reach afterwards
    _give_up(memory, user)
    if os.getppid() != parent:  # it ended before its end could be watched
        return 0
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    studies = ReceivedStudies()
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(json.loads(line), studies)) + "\n")
        sys.stdout.flush()
    return 0


def _give_up(memory: int, user: int) -> None:
    for what, most in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, _FILES),
        (resource.RLIMIT_NPROC, 0),
    ):
        resource.setrlimit(what, (most, most))
    if user and os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    die_with_parent(signal.SIGKILL)  # a change of the user takes this request back
    forbid_new_privileges()
    os.nice(_NICE)
