"""A C compiler that compiles each program of the engine once for all tests, whose data folders
are all new.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from support.environments import environment_home

_COMPILER = """#!/bin/sh
# Compiles like {compiler}. A program of one source, as the engine makes it, is kept: -Os -s [-static] -o made source
options="$1 $2"
case $3 in
-static) options="$options $3" made=$5 source=$6 flag=$4 count=6 ;;
*) made=$4 source=$5 flag=$3 count=5 ;;
esac
if [ "$1 $2 $flag $#" != "-Os -s -o $count" ]; then exec {compiler} "$@"; fi
digest=$(sha256sum <"$source") || exec {compiler} "$@"
kept="{folder}/${{digest%% *}}$options"
[ -e "$kept" ] && exec cp "$kept" "$made"
{compiler} "$@" || exit
cp "$made" "$kept.$$" && mv "$kept.$$" "$kept"
"""


def compile_once() -> None:
    """Put that compiler first on the path of this process and of those that it starts."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    folder = environment_home().with_name("compiled")
    if compiler is None or Path(compiler).parent == folder / "bin":
        return
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    draft = folder / "bin" / f".cc-{os.getpid()}"
    draft.write_text(_COMPILER.format(compiler=compiler, folder=folder))
    draft.chmod(0o755)
    draft.rename(folder / "bin" / "cc")
    os.environ["PATH"] = f"{folder / 'bin'}:{os.environ['PATH']}"
