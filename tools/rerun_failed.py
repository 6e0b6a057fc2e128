"""Run pytest with the given arguments, and once more, alone, what failed.

``.ci/run`` runs tests this way: a machine that runs thousands of tests of real processes beside
each other sometimes stalls one for longer than it allows. A test that fails twice fails. One that
fails only beside others is named as flaky, to be mended. CPython's ``regrtest --rerun`` does so.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

MOST = 5
"""More failures than this are no accident: nothing runs again."""
_TESTS_FAILED = 1
_GROUP = re.compile(r"@[^@\]]*$")
"""What ``--dist loadgroup`` adds to the name of a test."""


def main(arguments: Sequence[str]) -> int:
    """The exit code of pytest: of the second run, where there was one."""
    with tempfile.TemporaryDirectory() as cache:
        return _run_twice([*arguments, "-o", f"cache_dir={cache}"], Path(cache))


def _run_twice(arguments: Sequence[str], cache: Path) -> int:
    code = _run_pytest(arguments)
    failed = _read_failed(cache)
    if code != _TESTS_FAILED or not 0 < len(failed) <= MOST:
        return code
    print(f"── {len(failed)} failed; once more, alone", flush=True)
    _write_failed(cache, failed)
    one_process = () if "no:xdist" in arguments else ("-n", "0")
    code = _run_pytest([*arguments, "--last-failed", *one_process], _without_slices())
    still_failed = failed & _read_failed(cache)
    for test in sorted(failed - still_failed):
        print(f"FLAKY {test}", flush=True)
    return code or (_TESTS_FAILED if still_failed else 0)


def _run_pytest(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> int:
    command = [sys.executable, "-m", "pytest", *arguments]
    return subprocess.run(command, env=environment, check=False).returncode


def _without_slices() -> dict[str, str]:
    """The environment in which all tests are there: a slice counts places, and one test alone has
    another place than among all.
    """
    return {name: value for name, value in os.environ.items() if not name.endswith("_SLICE")}


def _read_failed(cache: Path) -> set[str]:
    """The tests that failed in the last run, as pytest keeps them, by the names that they have
    without workers.
    """
    kept = _kept_in(cache)
    found = json.loads(kept.read_text()) if kept.exists() else []
    return {_GROUP.sub("", test) for test in found}


def _write_failed(cache: Path, failed: set[str]) -> None:
    _kept_in(cache).write_text(json.dumps(dict.fromkeys(failed, True)))


def _kept_in(cache: Path) -> Path:
    return cache / "v" / "cache" / "lastfailed"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
