"""What each task of a gang of several has for itself: a host name, a ``/tmp`` and a folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from cloud_ml.engines.local.files import stop_notice, task_reports
from cloud_ml.engines.local.files.made_folders import make_folder, open_folder
from cloud_ml.engines.local.isolation import sandbox
from cloud_ml.engines.local.isolation.sandbox import View
from cloud_ml.engines.local.network import gang_hosts

_TASKS = "tasks"
_TMP = "/tmp"  # noqa: S108 - the task's own


class TaskFolders:
    """The folders of the tasks of one attempt.

    Args:
        names: Of all tasks.
        work: The working folder of the job. Folders of tasks in it outlive the attempt.
        tmp: The folder of the attempt for temporary files.
        hosts: Where the table of names goes.
        show: Turns a path into one that the sandbox can mount; ``None`` without a sandbox.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        work: Path,
        tmp: Path,
        hosts: Path,
        show: Callable[[str], str] | None,
    ) -> None:
        self.names = names
        self._work = work
        self._tmp = tmp
        self._hosts = hosts
        self._show = show

    def make(self, user: tuple[int, int] | None, etc: str) -> None:
        """Make what is not there, for the ``user`` (uid, gid) of the job.

        An earlier attempt may have put a link in the place of a folder. None is followed: this
        process may have more rights than the job.
        """
        with open_folder(self._work) as work, make_folder(_TASKS, work, user) as tasks:
            _make_all(self.names, tasks, user)
        with open_folder(self._tmp) as tmp:
            _make_all(self.names, tmp, user)
        if self._show is not None:
            gang_hosts.write(self._hosts, self.names, etc)

    def forget_names(self) -> None:
        """Remove the table of names: nobody looks for the tasks any more."""
        self._hosts.unlink(missing_ok=True)

    def view_of(self, name: str, view: View) -> View:
        """``view`` as the task sees it."""
        if self._show is None:
            return view
        others = [(source, target) for source, target in view.writable if target != _TMP]
        return replace(
            view,
            hostname=name,
            writable=[*others, (self._show(str(self._tmp / name)), _TMP)],
            read_only=[*view.read_only, (self._show(str(self._hosts)), gang_hosts.TARGET)],
        )

    def variables(self, name: str) -> dict[str, str]:
        """Where the task finds them."""
        if self._show is not None:
            return {"CLOUDML_TASK_DIR": f"{sandbox.WORK}/{_TASKS}/{name}"}
        return {
            "CLOUDML_TASK_DIR": str(self._work / _TASKS / name),
            "TMPDIR": str(self._tmp / name),
            stop_notice.VARIABLE: str(self._tmp / name / stop_notice.NAME),
            task_reports.VARIABLE: str(self._tmp / name / task_reports.NAME),
        }


def _make_all(names: Sequence[str], parent: int | None, user: tuple[int, int] | None) -> None:
    if parent is None:
        return
    for name in names:
        with make_folder(name, parent, user):
            pass
