"""An environment with the trainer's package in it: ours beside ``uv`` and ``pip``, without a
network and warm.

They make a virtual environment and install a wheel into it, as one does for each run; ours is found
again, or made for a wheel that is new. Run: ``python benchmarks/run.py peers.environments``.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import job_environments
from harness import Figure, median, serving, temporary_folder, timed, upload, wheel

from cloud_ml.bootstrap.programs import find_uv

ROUNDS, ROUNDS_OF_PIP = 10, 3


def run() -> list[Figure]:
    with temporary_folder() as folder, serving() as server:
        client, calls = server.client(), server.calls()
        hit = median(job_environments.resubmit(calls, upload(client, wheel(folder, "pass\n"))))
        new = median(job_environments.fresh(client, calls, folder, "wheel"))
    with temporary_folder() as folder:
        package = wheel(folder, "print('it is there')\n")
        theirs = {
            "uv": median(
                [timed(_made(folder / f"uv-{n}", package, _by_uv)) for n in range(ROUNDS)]
            ),
            "pip": median(
                [timed(_made(folder / f"pip-{n}", package, _by_pip)) for n in range(ROUNDS_OF_PIP)]
            ),
        }
    return [
        Figure(what, ours, "ms", 5.0, reference, name)
        for what, ours in (
            ("environment of a trainer met before", hit),
            ("environment of a new wheel", new),
        )
        for name, reference in theirs.items()
    ]


def _made(place: Path, package: Path, make: Callable[[Path, Path], None]) -> Callable[[], None]:
    def once() -> None:
        make(place, package)
        output = subprocess.run(
            [place / "bin" / "python", "-m", "trainer.task"],
            capture_output=True,
            cwd="/",
            check=False,
        ).stdout
        if output != b"it is there\n":
            raise SystemExit(f"an environment without the trainer: {place}")

    return once


def _by_uv(place: Path, package: Path) -> None:
    uv = str(find_uv())
    subprocess.run([uv, "venv", "-q", "--offline", "--python", sys.executable, place], check=True)
    subprocess.run(
        [uv, "pip", "install", "-q", "--offline", "--python", place / "bin/python", package],
        check=True,
    )


def _by_pip(place: Path, package: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    command = ["install", "-q", "--no-index", "--disable-pip-version-check", package]
    subprocess.run([place / "bin/python", "-m", "pip", *command], check=True)


if __name__ == "__main__":
    for figure in run():
        print(figure)
