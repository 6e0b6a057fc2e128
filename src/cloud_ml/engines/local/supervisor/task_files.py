"""The files by which a task and its supervisor tell each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cloud_ml.domain.workloads.progress import Progress
from cloud_ml.engines.local.files import stop_notice, task_reports


class TaskFiles:
    """Notices to the tasks of an attempt, and what they report.

    Args:
        tmp: The temporary folder of the attempt.
        separate: Whether each task has a folder of its own in it.
    """

    def __init__(self, tmp: Path, *, separate: bool) -> None:
        self._tmp = tmp
        self._separate = separate

    def leave_notice(self, name: str, reason: str, grace_s: float) -> None:
        """Tell a task why it is to stop, and when it is killed."""
        stop_notice.write(self._tmp, self._folders(name), reason, grace_s)

    def remove_notice(self, name: str) -> None:
        """Remove what a task was told that starts again."""
        stop_notice.remove(self._tmp, self._folders(name))

    def report_version(self, name: str) -> task_reports.Version | None:
        """The version of what a task has reported."""
        return task_reports.version(self._tmp, self._folders(name))

    def progress(self, name: str) -> Progress | None:
        """What a task has reported."""
        return task_reports.read(self._tmp, self._folders(name))

    def _folders(self, name: str) -> Sequence[str]:
        return (name,) if self._separate else ()
