"""Builds the wheel of the commit that is checked out: the same commit gives the same bytes.

::

    python tools/wheel.py dist

The files come from git and not from the working tree, so that nothing gets in that is not in the
commit. The time in the wheel is the commit's. In an unpacked source distribution, which has no git,
the folder itself is built.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def build(target: Path) -> Path:
    """Build the wheel into ``target``; returns its path."""
    target.mkdir(parents=True, exist_ok=True)
    if not (ROOT / ".git").exists():
        return _run_hatchling(ROOT, target, "")
    if _git("status", "--porcelain").strip():
        print(
            "note: the wheel is that of the last commit; what is not committed is not in it",
            file=sys.stderr,
        )
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "source")
        archive = Path(folder, "source.tar")
        _git("archive", "--format=tar", f"--output={archive}", "HEAD")
        with tarfile.open(archive) as files:
            files.extractall(source, filter="data")
        return _run_hatchling(source, target, _git("log", "-1", "--format=%ct").strip())


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words],  # noqa: S607
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def _run_hatchling(source: Path, target: Path, epoch: str) -> Path:
    for old in target.glob("*.whl"):
        old.unlink()
    subprocess.run(
        [
            sys.executable,
            "-m",
            "hatchling",
            "build",
            "--target",
            "wheel",
            "--directory",
            str(target.absolute()),
        ],
        cwd=source,
        env={
            **os.environ,
            "SOURCE_DATE_EPOCH": epoch or os.environ.get("SOURCE_DATE_EPOCH", "315532800"),
        },
        check=True,
        stdout=subprocess.DEVNULL,
    )
    (made,) = target.glob("*.whl")
    return made


def main() -> None:
    """Build, and say what it is."""
    made = build(Path(sys.argv[1] if len(sys.argv) > 1 else "dist"))
    print(f"{made}  sha256:{hashlib.sha256(made.read_bytes()).hexdigest()}")


if __name__ == "__main__":
    main()
