"""The first process inside a sandbox, which tells exactly how the command ended: ``init.c``.

bubblewrap's own answers like a shell, where exit code 137 and SIGKILL look the same. Ours is compiled
once, on the machine that it runs on; without a compiler bubblewrap's is used, and ``cloudml doctor`` says
what that costs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from cloud_ml.engines.local import sandbox

SOURCE = Path(__file__).with_name("init.c")
_COMPILERS = ("cc", "gcc", "clang")
_TIMEOUT_S = 60.0
_COST = "exit codes above 128 read as signals"
_TRIAL_CODE = 137


def find(folder: Path, bwrap: str) -> tuple[str, str]:
    """The program's path in ``folder``, or an empty one and the sentence that says why.

    The first time it is compiled and tried in a sandbox; what is there has passed.
    """
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]
    program = folder / f"init-{os.uname().machine}-{digest}"
    if program.exists():
        return str(program), ""
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        return "", f"{_COST}: no C compiler; apt install gcc libc6-dev (or dnf, pacman, …)"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".init-") as scratch:
        made = Path(scratch, "init")
        words = _compile(compiler, made, "-static") and _compile(compiler, made)
        if words:
            return "", f"{_COST}: {compiler} cannot compile a small program ({words})"
        made.chmod(0o755)
        if words := _try(made, bwrap):
            return "", f"{_COST}: a program in {folder} cannot be run in a sandbox ({words})"
        made.replace(program)
    return str(program), ""


def _compile(compiler: str, made: Path, *options: str) -> str:
    """Empty when it went well, otherwise the compiler's last words. Static where the machine has what that needs."""
    line = [compiler, "-Os", "-s", *options, "-o", str(made), str(SOURCE)]
    try:
        done = subprocess.run(line, capture_output=True, timeout=_TIMEOUT_S, check=False)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    words = done.stderr.decode(errors="replace").strip().splitlines()
    return (words[-1] if words else f"exit code {done.returncode}") if done.returncode else ""


def _try(program: Path, bwrap: str) -> str:
    """Empty when it tells an exit code that looks like a signal, otherwise what happened instead."""
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
            with os.fdopen(receiver, "rb") as told:
                status = told.read().strip()
    if status == b"%d" % (_TRIAL_CODE << 8):
        return ""
    return done.stderr.decode(errors="replace").strip() or f"it told {status!r}"
