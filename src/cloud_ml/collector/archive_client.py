"""The server's side of the comparison of archives: a process for each, which ends with its answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from typing import Any

from cloud_ml.collector.archive_main import LENGTHS
from cloud_ml.usecases.comparison.code import CannotCompare

# -I: no variable of Python's and no current folder adds modules to a process that starts as root.
_PROGRAM = (sys.executable, "-I", "-m", "cloud_ml.collector.archive_main")
_KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH")
_ANSWER_S = 60.0
_LARGEST_ANSWER = 4 * 2**20


class ArchiveComparer:
    """See ``usecases.comparison.code.CompareArchives``. Safe to use from several threads.

    Args:
        user: The user that the process becomes; 0 to stay the server's.
    """

    def __init__(self, user: int) -> None:
        self._user = user
        self._one_at_a_time = threading.Lock()

    def __call__(self, first: bytes, second: bytes) -> list[dict[str, Any]]:
        """The files that differ.

        Raises:
            CannotCompare: An archive is damaged, or too large.
        """
        with self._one_at_a_time:
            answer = self._ask(first, second, texts=True)
            # Texts may be made to take long; their digests do not.
            answer = answer or self._ask(first, second, texts=False)
        if answer is None:
            raise CannotCompare("the files take too long to compare")
        if "files" not in answer:
            raise CannotCompare(str(answer.get("error"))[:300])
        found: list[dict[str, Any]] = answer["files"]
        return found

    def _ask(self, first: bytes, second: bytes, *, texts: bool) -> dict[str, Any] | None:
        request = LENGTHS.pack(len(first), len(second), texts)
        variables = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        try:
            done = subprocess.run(  # noqa: S603 - our own program
                [*_PROGRAM, str(self._user)],
                input=b"".join((request, first, second)),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=_ANSWER_S,
                check=False,
                cwd="/",
                env=variables,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        if done.returncode or len(done.stdout) > _LARGEST_ANSWER:
            return None
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer
