"""Run pytest with the given arguments, and once more, alone, what failed.

``.ci/run`` runs tests this way: a machine that runs thousands of tests of real processes beside
each other sometimes stalls one for longer than it allows. A test that fails twice fails. One that
fails only beside others is named as flaky, to be mended. CPython's ``regrtest --rerun`` does so.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

MOST = 5
"""More failures than this are no accident: nothing runs again."""
_TESTS_FAILED = 1


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
    one_process = () if "no:xdist" in arguments else ("-n", "0")
    code = _run_pytest([*arguments, "--last-failed", *one_process])
    for test in sorted(set(failed) - set(_read_failed(cache))):
        print(f"FLAKY {test}", flush=True)
    return code


def _run_pytest(arguments: Sequence[str]) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode


def _read_failed(cache: Path) -> Sequence[str]:
    """The tests that failed in the last run, as pytest keeps them."""
    kept = cache / "v" / "cache" / "lastfailed"
    return list(json.loads(kept.read_text())) if kept.exists() else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
