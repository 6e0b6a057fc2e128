"""What runs for TensorBoards: PyPI's TensorBoard, with a wheel of ours that starts it."""

from __future__ import annotations

from pathlib import Path

from cloud_ml.controller.programs.packages import is_used_again
from cloud_ml.controller.programs.wheels import store_wheel
from cloud_ml.domain.tensorboards.spec import TensorBoardRecord
from cloud_ml.engines.gang import TrainerSource
from cloud_ml.usecases.offload import Offload

_NAME = "cloudml-tensorboard"
_ROOMS = ("tensorboard",)
_NEEDED = ("tensorboard>=2.20",)


class TensorBoardPackage:
    """Makes the wheel, once.

    Args:
        folder: The folder of packages.
        offload: Runs what blocks.
    """

    def __init__(self, folder: Path, offload: Offload) -> None:
        self._folder = folder
        self._offload = offload
        self._made: TrainerSource | None = None

    async def provide(
        self, job: TensorBoardRecord
    ) -> tuple[TensorBoardRecord, TrainerSource] | None:
        """See ``controller.programs.trainers.Files``."""
        return job, await self._offload(self._source)

    def forget(self, uid: str) -> None:
        """Nothing is under way for one of them."""

    async def tidy(self) -> None:
        """There is one, and it is small."""

    def _source(self) -> TrainerSource:
        made = self._made
        if made is None or not is_used_again(self._folder / made.digest / made.name):
            made = self._made = store_wheel(self._folder, _NAME, _ROOMS, _NEEDED)
        return made
