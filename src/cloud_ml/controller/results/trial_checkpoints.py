"""Removes the checkpoints of trials that their studies do not keep, beside the passes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence

from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.records import ParentRef
from cloud_ml.domain.studies.spec import STUDY, StudyRecord, TrialCheckpoints, trial_name
from cloud_ml.errors import FenceLost, NotFound
from cloud_ml.state.base import Fence, StateStore
from cloud_ml.usecases.jobs.checkpoint_references import CheckpointReferences
from cloud_ml.usecases.jobs.checkpoints import Checkpoints
from cloud_ml.usecases.offload import Offload

_LOOK_EACH_S = 0.2
"""So often it is looked whether the study keeps others meanwhile. To read one of thousands of trials
takes a tenth of a second.
"""
logger = logging.getLogger(__name__)


class TrialCheckpointRemoval:
    """Removes them for each study on its own, one trial after the other. Belongs to one event loop.

    A job of a trial first gets the request that all of its checkpoints go, which is refused if somebody
    refers to one. Only then they are removed. What became of them is known until the study is told;
    it is found again if the server is killed before.

    Args:
        store: Has the jobs of trials.
        references: Knows who refers to checkpoints.
        checkpoints: Removes them.
        offload: Runs blocking calls.
        fence: Of the term.
        wake: Called with the uid of a study when there is something to tell it.
        monotonic: The time of a clock that is never set.
    """

    def __init__(
        self,
        store: StateStore,
        references: CheckpointReferences,
        checkpoints: Checkpoints,
        *,
        offload: Offload,
        fence: Fence,
        wake: Callable[[str], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._references = references
        self._checkpoints = checkpoints
        self._offload = offload
        self._fence = fence
        self._wake = wake
        self._monotonic = monotonic
        self._removing: dict[str, asyncio.Task[None]] = {}
        self._found: dict[str, dict[int, TrialCheckpoints]] = {}

    async def serve(self) -> None:
        """Until it is cancelled; then nothing begins any more."""
        try:
            await asyncio.Event().wait()
        finally:
            tasks = list(self._removing.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def take_found(self, record: StudyRecord) -> Mapping[int, TrialCheckpoints]:
        """What became of checkpoints of a study since this was asked last, by the numbers of trials."""
        return self._found.pop(record.key.uid, {})

    def find_left(self, record: StudyRecord, numbers: Sequence[int]) -> Sequence[int]:
        """Those of some trials of which it is not known what became of their checkpoints."""
        found = self._found.get(record.key.uid, {})
        return [number for number in numbers if number not in found]

    def forget(self, uid: str) -> None:
        """The study is gone."""
        self._found.pop(uid, None)

    def begin(self, record: StudyRecord, numbers: Sequence[int]) -> None:
        """Remove the checkpoints of trials, unless some of the study are being removed."""
        if record.key.uid not in self._removing:
            task = asyncio.create_task(self._remove_all(record, numbers))
            self._removing[record.key.uid] = task

    async def _remove_all(self, record: StudyRecord, numbers: Sequence[int]) -> None:
        uid, looked_at = record.key.uid, self._monotonic()
        try:
            for number in numbers:
                if self._monotonic() - looked_at >= _LOOK_EACH_S:
                    if not await self._offload(self._keeps_the_same, record):
                        break
                    looked_at = self._monotonic()
                found = await self._offload.long(record.key.org, self._remove, record, number)
                if found is not None:
                    self._found.setdefault(uid, {})[number] = found
        except FenceLost:  # another server goes on
            return
        except Exception:  # the next look tries again; the study does not suffer from it
            extra = {"study": record.key.name, "uid": uid}
            logger.exception("checkpoints of trials cannot be removed", extra=extra)
        finally:
            self._removing.pop(uid, None)
        if uid in self._found:
            self._wake(uid)

    def _keeps_the_same(self, record: StudyRecord) -> bool:
        """Whether a study is there and keeps what it kept: nobody has asked for another policy, by
        which some that are left may stay. Blocking.
        """
        current = self._store.get(STUDY, record.key.uid)
        return current is not None and current.spec.keep_checkpoints == record.spec.keep_checkpoints

    def _remove(self, record: StudyRecord, number: int) -> TrialCheckpoints | None:
        """Remove the checkpoints of a trial; ``None`` if its job has not ended after all. Blocking."""
        if self._offload.stopping():
            return None
        name = trial_name(record.key.name, number)
        job = self._store.find(TRAIN_JOB, record.key.org, name)
        if job is None or job.parent != ParentRef(STUDY.name, record.key.uid):
            return TrialCheckpoints.UNKNOWN
        if not job.status.phase.terminal:
            return None
        why = f"its checkpoints are removed: study {record.key.name} keeps those of other trials"
        try:
            if not self._references.drop(job, why, self._fence):
                return TrialCheckpoints.IN_USE
        except NotFound:  # it was deleted just now
            return TrialCheckpoints.UNKNOWN
        self._checkpoints.remove_all(job)
        return TrialCheckpoints.REMOVED
