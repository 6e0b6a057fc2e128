"""The folder of a gang's checkpoints, which lies in a bucket and is the job's."""

from __future__ import annotations

import selectors
from collections.abc import Callable, Sequence
from pathlib import Path

from cloud_ml.domain.workloads.checkpoints import NotedCheckpoint
from cloud_ml.engines.local.files import newest_checkpoint, task_reports
from cloud_ml.engines.local.files.made_folders import make_below, remove_empty
from cloud_ml.engines.local.isolation.bind_mounts import BucketMounts
from cloud_ml.engines.local.resolved_gang import ResolvedGang
from cloud_ml.engines.local.supervisor.renamed_checkpoints import RenamedCheckpoints


class CheckpointFolder:
    """Made for an attempt, watched while it runs, and removed if nothing is in it.

    Args:
        gang: Whose checkpoints they are.
        buckets: Where the bucket is on this machine.
        user: The uid and gid of the job's files; ``None`` for this process's own.
    """

    def __init__(
        self, gang: ResolvedGang, buckets: BucketMounts, user: tuple[int, int] | None
    ) -> None:
        self._path = gang.makes
        self._is_array = gang.array is not None
        self._buckets = buckets
        self._user = user
        self.renamed = RenamedCheckpoints(user, gang.key.attempt)

    def make(self, log: Callable[[bytes], None]) -> None:
        """Make it where it is not there. ``log`` takes a line for the job's log."""
        if (place := self._place()) is not None:
            try:
                make_below(*place, self._user)
            except OSError as error:  # the code that needs it makes it, or is told why not
                log(f"cloudml: {self._path} cannot be made: {error}\n".encode())

    def watch(self, selector: selectors.BaseSelector, log: Callable[[bytes], None]) -> None:
        """Note from here on what the job renames into it. Tasks of an array have folders of their
        own, which are not watched. ``log`` takes a line for the job's log.
        """
        if not self._is_array and (place := self._place()) is not None:
            self.renamed.start(selector, *place, log)

    def noted(self) -> Sequence[NotedCheckpoint]:
        """The checkpoints that are noted in it."""
        if (place := self._place()) is None:
            return ()
        self.renamed.look()
        return task_reports.noted_checkpoints(*place)

    def newest(self) -> NotedCheckpoint | None:
        """The newest complete checkpoint of the gang. Tasks of an array have none in common."""
        if self._is_array or (place := self._place()) is None:
            return None
        self.renamed.look()
        return newest_checkpoint.newest(*place)

    def path_of(self, checkpoint: NotedCheckpoint) -> str:
        """Where processes see a checkpoint."""
        return f"{self._path}/{checkpoint.path}"

    def leave(self) -> None:
        """Watch it no more. It goes if nothing is in it."""
        self.renamed.close()
        if (place := self._place()) is not None:
            remove_empty(*place)

    def _place(self) -> tuple[Path, Sequence[str]] | None:
        """The bucket's folder on this machine, and the path below it; ``None`` if the bucket is
        not there.
        """
        bound = self._buckets.holding(self._path)
        if bound is None:
            return None
        return Path(bound.source), self._path.removeprefix(f"{bound.target}/").split("/")
