"""Two small programs in C, compiled once, on the machine that they run on.

``init.c`` is the first process inside a sandbox, which tells exactly how the command ended:
bubblewrap's own answers like a shell, where exit code 137 and SIGKILL look the same. Without a
compiler bubblewrap's is used, and ``cloudml doctor`` says what that costs. ``seat.c`` waits in its
control group to become a command, where a fork of the supervisor would copy its memory first.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cloud_ml.engines.local.isolation import sandbox

SOURCE, SEAT_SOURCE = (Path(__file__).with_name(name) for name in ("init.c", "seat.c"))
_COMPILERS = ("cc", "gcc", "clang")
_TIMEOUT_S = 60.0
_COST = (
    "exit codes above 128 read as signals, and jobs without a network (engine.network = none) "
    "do not reach the server"
)
_TRIAL_CODE = 137


def find(folder: Path, bwrap: str) -> tuple[str, str]:
    """The program's path in ``folder``, or an empty one and the sentence that says why.

    The first time it is compiled and tried in a sandbox; what is there has passed.
    """
    program, words = _build_program(SOURCE, folder, lambda made: _try(made, bwrap))
    return program, f"{_COST}: {words}" if words else ""


def find_seat(folder: Path) -> str:
    """The path in ``folder`` of the program that waits to become a command, or an empty one: it
    is not needed.
    """
    return _build_program(SEAT_SOURCE, folder, _try_seat)[0]


def _build_program(source: Path, folder: Path, tried: Callable[[Path], str]) -> tuple[str, str]:
    """The path of the program made of ``source``, or an empty one and the words that say why."""
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    program = folder / f"{source.stem}-{os.uname().machine}-{digest}"
    if program.exists():
        return str(program), ""
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        return "", "no C compiler; apt install gcc libc6-dev (or dnf, pacman, …)"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=f".{source.stem}-") as scratch:
        made = Path(scratch, source.stem)
        words = _compile(compiler, source, made, "-static") and _compile(compiler, source, made)
        if words:
            return "", f"{compiler} cannot compile a small program ({words})"
        made.chmod(0o755)
        if words := tried(made):
            return "", f"a program in {folder} cannot be run in a sandbox ({words})"
        with made.open("rb") as file:  # what is there has passed, also after a power cut
            os.fsync(file.fileno())
        made.replace(program)
    return str(program), ""


def seat_orders(
    line: Sequence[str],
    environment: Mapping[str, str],
    user: tuple[int, int] | None,
    network: str = "",
) -> bytes:
    """What ``seat.c`` reads. ``network`` is the file of the network to enter, empty to stay.

    Raises:
        OSError: A string has a NUL in it, as no program can be given.
    """
    who = map(str, user) if user is not None else ("", "")
    strings = [
        *who,
        network,
        str(len(line)),
        *line,
        *(f"{name}={value}" for name, value in environment.items()),
        ".",
    ]
    if any("\0" in string for string in strings):
        raise OSError(errno.EINVAL, "a word or variable of the command has a NUL character in it")
    return os.fsencode("".join(f"{string}\0" for string in strings))


def _compile(compiler: str, source: Path, made: Path, *options: str) -> str:
    """Empty when it went well, otherwise the compiler's last words. Static where the machine has
    what that needs.
    """
    line = [compiler, "-Os", "-s", *options, "-o", str(made), str(source)]
    try:
        done = subprocess.run(line, capture_output=True, timeout=_TIMEOUT_S, check=False)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    words = done.stderr.decode(errors="replace").strip().splitlines()
    return (words[-1] if words else f"exit code {done.returncode}") if done.returncode else ""


def _try(program: Path, bwrap: str) -> str:
    """Empty when it tells an exit code that looks like a signal, otherwise what happened
    instead.
    """
    with program.open("rb") as opened:
        receiver, sender = os.pipe()
        line = sandbox.command_line(
            bwrap,
            sandbox.View(folder="/"),
            ["/bin/sh", "-c", f"exit {_TRIAL_CODE}"],
            status_fd=sender,
            init_fd=opened.fileno(),
        )
        try:
            done = subprocess.run(  # noqa: S603
                line,
                pass_fds=(sender, opened.fileno()),
                env={},
                cwd="/",
                capture_output=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            return str(error)
        finally:
            os.close(sender)
            with os.fdopen(receiver, "rb") as reader:
                status = reader.read().strip()
    if status == b"%d" % (_TRIAL_CODE << 8):
        return ""
    return done.stderr.decode(errors="replace").strip() or f"it told {status!r}"


def _try_seat(program: Path) -> str:
    """Empty when it becomes what it is told to, otherwise what happened instead."""
    receiver, sender = os.pipe()
    os.write(sender, seat_orders(["/bin/sh", "-c", "exit $CODE"], {"CODE": str(_TRIAL_CODE)}, None))
    os.close(sender)
    try:
        done = subprocess.run(  # noqa: S603
            [str(program), str(receiver), str(os.getpid()), "0"],
            pass_fds=(receiver,), capture_output=True, timeout=_TIMEOUT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    finally:
        os.close(receiver)
    return "" if done.returncode == _TRIAL_CODE else f"it answered {done.returncode}"
