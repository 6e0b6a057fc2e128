"""What a user waits for at the command line: ``--help`` and a list, ours beside those of others.

A list is of what there is on this machine, which is nothing. Run:
``python benchmarks/run.py peers.commands``.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from commands import wall
from harness import CLOUDML, KEY, SECRET, Figure, median, serving, temporary_folder, timed

from peers.having import Absent, folder_of, version_of

ROUNDS = 3
LIMIT_S = 40.0
"""Of one call."""
_SLOW_MS = 5000
"""Of what takes longer, once is enough."""
CALLS: dict[str, tuple[str, list[str], list[str]]] = {
    "ray": ("Ray", ["ray", "--help"], []),
    "mlflow": ("MLflow", ["mlflow", "--help"], ["mlflow", "experiments", "search"]),
    "metaflow": ("Metaflow", ["metaflow", "--help"], []),
    "dstack": ("dstack", ["dstack", "--help"], []),
}


def run() -> list[Figure]:
    with serving() as server:
        known = server.environment(
            CLOUDML_ENDPOINT=server.endpoint, CLOUDML_ACCESS_KEY=KEY, CLOUDML_SECRET_KEY=SECRET
        )
        ours = {
            "--help": wall([CLOUDML, "--help"], known),
            "a list": wall([CLOUDML, "jobs", "list"], known),
        }
    figures = []
    for peer, (name, help_command, list_command) in CALLS.items():
        for what, command, target in (
            ("--help", help_command, 60.0),
            ("a list", list_command, 100.0),
        ):
            if command:
                try:
                    theirs = _wall(folder_of(peer) / "bin", command)
                except Absent as error:
                    print(f"  without {what} of {name}: {error}")
                    continue
                beside = f"{name} {version_of(peer)}"
                figures.append(
                    Figure(f"command line: {what}", ours[what], "ms", target, theirs, beside)
                )
    return sorted(figures, key=lambda figure: figure.what)


def _wall(binaries: Path, command: list[str]) -> float:
    """Median milliseconds; the first call, which compiles its modules, does not count.

    Raises:
        Absent: It fails, or takes too long.
    """
    with temporary_folder() as home:
        environment = {
            "HOME": str(home),
            "PATH": f"{binaries}:/usr/bin:/bin",
            "LANG": os.environ.get("LANG", "C.UTF-8"),
            "MLFLOW_TRACKING_URI": f"sqlite:///{home}/mlflow.db",
            "USER": "bench",
        }

        def once() -> None:
            words = [binaries / command[0], *command[1:]]
            try:
                done = subprocess.run(
                    words,
                    env=environment,
                    capture_output=True,
                    cwd=home,
                    timeout=LIMIT_S,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                raise Absent(f"{' '.join(command)} takes longer than {LIMIT_S:.0f} s") from None
            if done.returncode or not done.stdout + done.stderr:
                raise Absent(f"{' '.join(command)}: {done.stderr.decode()[-300:]}")

        slow = timed(once) > _SLOW_MS
        return median([timed(once) for _ in range(1 if slow else ROUNDS)])


if __name__ == "__main__":
    for figure in run():
        print(figure)
