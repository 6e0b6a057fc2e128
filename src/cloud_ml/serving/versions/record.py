"""What is known of a model and each of its versions."""

from collections.abc import Collection
from dataclasses import dataclass, field

from cloud_ml.serving.errors import ServingError
from cloud_ml.serving.loaded import LoadedVersion
from cloud_ml.serving.versions.decide import Phase, State
from cloud_ml.serving.versions.folders import Folder, Interest, Look, select_versions
from cloud_ml.serving.versions.model_config import ModelConfig

ENDED_KEPT = 20
"""Ended versions of a model whose state is still told."""


@dataclass(slots=True)
class Record:
    """A version: its phase, what it was loaded of, and why it failed where it did."""

    number: int
    phase: Phase = Phase.START
    print: str = ""
    size: int = 0
    error: ServingError | None = None
    attempts: int = 0
    retry_at: float | None = None
    failing_since: float | None = None
    stale: bool = False
    replacing: bool = False
    loaded: LoadedVersion | None = None

    @property
    def failed(self) -> bool:
        """Whether its last load failed and it does not answer."""
        return self.error is not None and self.loaded is None

    def state(self, whole: Collection[int]) -> State:
        """As far as decisions need it; ``whole`` are the versions whose files are there to be
        loaded.
        """
        stale = self.stale and not self.replacing and self.number in whole
        return State(self.phase, self.print, self.failed, self.retry_at, stale)


@dataclass(frozen=True, slots=True)
class VersionStatus:
    """A version as callers are told of it."""

    number: int
    phase: Phase
    code: int = 0
    message: str = ""


@dataclass(slots=True)
class ModelRecord:
    """A model. ``gone``: not configured any more; ``off``: unloaded by hand; ``refresh``: look
    at running ones, too.
    """

    config: ModelConfig
    records: dict[int, Record] = field(default_factory=dict)
    look: Look = field(default_factory=Look)
    scanned: bool = False
    gone: bool = False
    off: bool = False
    refresh: bool = False
    absent_since: float | None = None

    def numbers(self, *phases: Phase) -> frozenset[int]:
        """Versions in these phases."""
        return frozenset(
            number for number, record in self.records.items() if record.phase in phases
        )

    @property
    def failed(self) -> frozenset[int]:
        """Versions whose last load failed and that do not answer."""
        return frozenset(number for number, record in self.records.items() if record.failed)

    @property
    def interest(self) -> Interest:
        """What the next look should see."""
        loaded: frozenset[int] = frozenset()
        if not self.refresh:
            loaded = self.numbers(Phase.LOADING, Phase.AVAILABLE) - self._stale
        before = {**self.look.whole, **self.look.growing}
        return Interest(self.config.policy, loaded, self.failed, before)

    def desired_versions(self) -> dict[int, str]:
        """The versions that shall answer, with the prints of their files.

        What runs stays where the folder shows nothing at all: an emptied or unreachable disk takes
        nothing down.
        """
        if self.gone or self.off:
            return {}
        loaded = self.numbers(Phase.LOADING, Phase.AVAILABLE)
        chosen = select_versions(self.config.policy, self.look, loaded, self.failed) or loaded
        return {
            number: self.records[number].print
            if number in loaded
            else self.look.whole[number].print
            for number in chosen
        }

    def states(self) -> dict[int, State]:
        """The versions as far as decisions need them."""
        return {
            number: record.state(self.look.whole.keys()) for number, record in self.records.items()
        }

    @property
    def _stale(self) -> frozenset[int]:
        return frozenset(number for number, record in self.records.items() if record.stale)

    @property
    def concluded(self) -> bool:
        """Whether all that could be done with what lies there was done, well or not."""
        if self.gone or self.off:
            return not self.numbers(Phase.START, Phase.LOADING, Phase.AVAILABLE, Phase.UNLOADING)
        busy = self.numbers(Phase.START, Phase.LOADING) or any(
            each.replacing for each in self.records.values()
        )
        waits = self.look.growing and not self.numbers(Phase.AVAILABLE)
        return self.scanned and not busy and not waits

    @property
    def absent(self) -> bool:
        """Whether no files of any version are there that could be loaded."""
        if self.gone or self.off or not self.scanned or self.records:
            return False
        return bool(self.look.error) or not (self.look.whole or self.look.growing)

    @property
    def load_failed(self) -> bool:
        """Whether every version that shall answer has failed, and no load is tried again unless
        files change.
        """
        if self.gone or self.off or self.look.error or not self.failed or not self.concluded:
            return False
        return all(
            number in self.failed and self.records[number].retry_at is None
            for number in self.desired_versions()
        )

    @property
    def why_not(self) -> str:
        """Why no version answers."""
        if self.off:
            return "it was unloaded"
        if self.look.error:
            return self.look.error
        failed = [
            f"version {n}: {self.records[n].error}" for n in sorted(self.failed, reverse=True)
        ]
        if failed:
            return "; ".join(failed)
        if self.numbers(Phase.START, Phase.LOADING):
            return "it is being loaded"
        if self.look.growing:
            return "its files are still being written"
        return (
            f"no version was found under {self.config.base}"
            if self.scanned
            else "it was not looked for yet"
        )

    def statuses(self) -> list[VersionStatus]:
        """All that is known of versions, the newest first."""
        made = []
        for number in sorted(self.records, reverse=True):
            record = self.records[number]
            error = record.error
            made.append(
                VersionStatus(
                    number, record.phase, error.grpc if error else 0, error.message if error else ""
                )
            )
        return made

    def folder(self, number: int) -> Folder:
        """Where a version lies that is wanted and not loaded."""
        return self.look.whole[number]

    def forget(self) -> None:
        """Keep the states of the newest ended versions only."""
        ended = sorted(self.numbers(Phase.END))
        for number in ended[:-ENDED_KEPT]:
            del self.records[number]

    def reconfigure(self, config: ModelConfig) -> None:
        """Serve what this says from now on; versions from another folder are replaced by those
        of the new one.
        """
        moved = config.base != self.config.base
        if moved or config.policy != self.config.policy or self.gone:
            self.scanned = False
        if moved:
            self.look, self.refresh = Look(), True
        self.config, self.gone, self.off = config, False, False

    def take_in(self, look: Look) -> None:
        """Know what was seen; running versions whose files are others now become stale, if that
        was asked for.
        """
        if look.error:
            self.look = Look(self.look.numbers, self.look.whole, self.look.growing, look.error)
        else:
            self.look = look
            if self.refresh:
                for number in self.numbers(Phase.AVAILABLE) & look.whole.keys():
                    self.records[number].stale = (
                        self.records[number].print != look.whole[number].print
                    )
            self.refresh = False
        self.scanned = True
