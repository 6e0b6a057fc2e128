"""The program that a job runs to try many attacks: each in a process of its own, the results as one
line of JSON.

It is handed to a job as text (``python -c``), so it imports nothing but the standard library, and
any Python runs it.
"""

import ctypes
import errno
import json
import os
import select
import signal
import sys
from typing import Any, Callable, Dict

LIMIT_S = 10
A: Dict[str, Any] = {}
"""What the scene tells the attacker: paths, process ids, names. A real one would have to find
out.
"""
libc = ctypes.CDLL(None, use_errno=True)


def outcome(attempt: Callable[..., object], *what: object) -> str:
    """``done``, or the name of the error."""
    try:
        attempt(*what)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return "done"


def call(number: int, *what: Any) -> int:
    """A system call: its result, or an ``OSError``. Whole numbers are passed as longs."""
    ctypes.set_errno(0)
    result = libc.syscall(
        ctypes.c_long(number),
        *(ctypes.c_long(one) if isinstance(one, int) else one for one in what),
    )
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(result)


def opened(path: str, flags: int = os.O_RDONLY) -> None:
    """Open a file and let go of it."""
    os.close(os.open(path, flags))


def found(text: bytes) -> None:
    """Count an attack as done only if it brought the secret."""
    if A["secret"].encode() not in text:
        raise OSError(errno.ENODATA, "something else is there")


def read(path: str) -> None:
    """Read a file that holds the secret."""
    with open(path, "rb") as file:
        found(file.read(1 << 20))


def attempt(program: str) -> str:
    """What ``program`` told, in a process of its own; the name of the signal if one ended it."""
    receiver, sender = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(receiver)
        words: object = None
        try:
            names = dict(globals())
            exec(program, names)
            words = names["attack"]()
        except OSError as error:
            words = errno.errorcode.get(error.errno or 0, str(error))
        except BaseException as error:
            words = "{}: {}".format(type(error).__name__, error)
        os.write(sender, str(words or "done").encode())
        os._exit(0)
    os.close(sender)
    if not select.select([receiver], [], [], LIMIT_S)[0]:
        os.kill(pid, signal.SIGKILL)
    report = os.read(receiver, 4096).decode()
    os.close(receiver)
    _, status = os.waitpid(pid, 0)
    return report or (
        signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else "nothing"
    )


if __name__ == "__main__":
    attacks = json.loads(sys.argv[1])
    A.update(json.loads(sys.argv[2]))
    print(json.dumps({name: attempt(program) for name, program in attacks.items()}), flush=True)
