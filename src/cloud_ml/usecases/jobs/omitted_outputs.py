"""What of a job's files is not stored, why, and the sentences that say so."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from cloud_ml.domain.workloads.outputs import JobFile, Obstacle, OmittedFiles
from cloud_ml.models import common
from cloud_ml.settings import OutputSettings

_OBSTACLES = {
    Obstacle.FOREIGN: ("file", "owned by another user"),
    Obstacle.LINK_OUTSIDE: ("link", "leading out of the working directory"),
    Obstacle.LINK_BROKEN: ("link", "leading to no file"),
    Obstacle.LINK_TO_FOLDER: (
        "link",
        "leading to a folder, whose files are saved under its own name",
    ),
    Obstacle.LINK_BEYOND: ("link", "beyond the number of links that are followed for one job"),
    Obstacle.FOLDER_CLOSED: ("folder", "closed to the server by its permissions"),
    Obstacle.FOLDER_TOO_DEEP: ("folder", "inside of too many other folders"),
}
_NOTHING_LOST = frozenset({Obstacle.LINK_BROKEN, Obstacle.LINK_TO_FOLDER})


class OmittedOutputs:
    """Files that are not stored, by reason."""

    def __init__(self) -> None:
        self.beyond = OmittedFiles()
        self.unmatched = OmittedFiles()
        self.unnameable = OmittedFiles()
        self.quota = OmittedFiles()
        self.objects = OmittedFiles()
        self.disk = OmittedFiles()
        self.no_bucket = OmittedFiles()
        self.obstructed = OmittedFiles()
        self.failed = OmittedFiles()
        self.obstacles: defaultdict[Obstacle, OmittedFiles] = defaultdict(OmittedFiles)

    @property
    def anything(self) -> bool:
        """Whether there is anything to say."""
        return bool(self.count) or any(some.files for some in self.obstacles.values())

    @property
    def count(self) -> int:
        """How many files are missing, for any reason. Closed folders and the like count as one."""
        named = [some.files for some in vars(self).values() if isinstance(some, OmittedFiles)]
        hidden = [
            some.files for obstacle, some in self.obstacles.items() if obstacle not in _NOTHING_LOST
        ]
        return sum(named) + sum(hidden)

    @staticmethod
    def add_all(some: OmittedFiles, files: Sequence[JobFile]) -> None:
        """Count files under one reason."""
        for file in files:
            some.add(file)

    def sentences(self, settings: OutputSettings) -> Iterator[tuple[str, bool]]:
        """A sentence for each reason that applies, and whether files are missing for it."""
        for words, some in self._reasons(settings):
            yield _sentence("file", words, some), True
        for obstacle, (noun, words) in _OBSTACLES.items():
            if obstacle in self.obstacles:
                some = self.obstacles[obstacle]
                yield _sentence(noun, words, some), obstacle not in _NOTHING_LOST

    def _reasons(self, settings: OutputSettings) -> Iterator[tuple[str, OmittedFiles]]:
        too_slow = f"comparing names with the patterns took longer than {settings.matching_s:g} s (outputs.matching_s)"
        bounds = (
            f"{settings.max_bytes or 'any size'} and {settings.max_files or 'any number of'} files"
        )
        for words, some in (
            (
                f"over the limit of {bounds} for each job (outputs.max_bytes, outputs.max_files)",
                self.beyond,
            ),
            (too_slow, self.unmatched),
            ("names that cannot be keys of objects", self.unnameable),
            ("storage quota exceeded", self.quota),
            ("as many objects as the organisation may have", self.objects),
            ("disk full", self.disk),
            ("the organisation has no default bucket", self.no_bucket),
            ("something else has their place in the bucket", self.obstructed),
            ("they cannot be read or written", self.failed),
        ):
            if some.files:
                yield words, some


def count(number: int, noun: str = "file") -> str:
    """Such as ``1 file`` and ``3 files``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _sentence(noun: str, words: str, some: OmittedFiles) -> str:
    sized = noun == "file"
    names = ", ".join(
        f"{name} ({common.format_memory(size)})" if sized else name for size, name in some.names()
    )
    more = ", …" if some.files > len(some.largest) else ""
    return f"{count(some.files, noun)} not saved as outputs, {words}: {names}{more}"
