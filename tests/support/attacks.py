"""What a hostile job tries, as programs for any Python: each prints one JSON value that says how
far it got.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from cloud_ml.engines.base import Engine
from support.gangs import gang_of, run

PYTHON = (
    "/usr/bin/python3" if Path("/usr/bin/python3").exists() else os.path.realpath(sys.executable)
)
PRELUDE = '''
import contextlib, ctypes, errno, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
arguments = json.loads(sys.argv[1])

def tell(value):
    print(json.dumps(value), flush=True)

def outcome(attempt, *what):
    """"done", or the name of the error."""
    try:
        attempt(*what)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"

def call(number, *what):
    """A system call: "done", or the name of the error."""
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *(ctypes.c_void_p(one) for one in what))
    return errno.errorcode[ctypes.get_errno()] if result == -1 else "done"
'''


async def attack(engine: Engine, program: str, *arguments: Any, **changes: Any) -> Any:
    """Run ``program`` as a job; returns what it told. ``arguments`` is its list of arguments, as
    JSON.
    """
    seen, log = await run(
        engine, gang_of(PYTHON, "-c", PRELUDE + program, json.dumps(arguments), **changes)
    )
    assert seen.succeeded, f"the attack itself is wrong: {seen.message}\n{log}"
    return json.loads(log.splitlines()[-1])
