"""Archives of trainers, by the member rules of `cloud_ml.launcher.archives`."""

from __future__ import annotations

import lzma
import zlib
from pathlib import Path

from cloud_ml.environments.base import EnvironmentFailed
from cloud_ml.launcher import archives


def unpack(archive: Path | int, name: str, target: Path) -> None:
    """Unpack ``archive``, which its owner calls ``name``, into ``target``; ``archive`` may be open
    already.

    Raises:
        EnvironmentFailed: It breaks a rule, is damaged, or is no archive (``TrainerInvalid``).
    """
    try:
        archives.unpack(archive if isinstance(archive, int) else str(archive), str(target))
    except (archives.ArchiveError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise EnvironmentFailed("TrainerInvalid", f"{name} cannot be unpacked: {error}") from error
