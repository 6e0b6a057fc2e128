"""The next steps of one model's versions: a pure function of what is wanted and what is."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum


class Phase(IntEnum):
    """Where a version is in its life; names and numbers are TensorFlow Serving's."""

    START = 10
    LOADING = 20
    AVAILABLE = 30
    UNLOADING = 40
    END = 50


STATES = {
    Phase.START: "LOADING",
    Phase.LOADING: "LOADING",
    Phase.AVAILABLE: "READY",
    Phase.UNLOADING: "UNLOADING",
    Phase.END: "UNAVAILABLE",
}
"""What the Open Inference Protocol calls them."""


@dataclass(frozen=True, slots=True)
class State:
    """A version as far as decisions need it. ``retry_at`` is when a failed load is worth another
    try; None is never.

    ``print`` is of the files that were loaded or could not be; ``stale`` says that a version that
    answers shall be replaced by what its files are now.
    """

    phase: Phase
    print: str = ""
    failed: bool = False
    retry_at: float | None = None
    stale: bool = False


@dataclass(frozen=True, slots=True)
class Steps:
    """What to do now, and when to ask again if nothing happens before."""

    load: tuple[int, ...] = ()
    queue: tuple[int, ...] = ()
    leave: tuple[int, ...] = ()
    end: tuple[int, ...] = ()
    again_at: float | None = None


def decide(
    desired: Mapping[int, str],
    versions: Mapping[int, State],
    now: float,
    slots: int,
    *,
    gone: bool = False,
) -> Steps:
    """The next steps.

    New versions first: an old one leaves when a wanted one answers, or when the model is ``gone``
    as a whole. So a version that cannot be loaded takes nothing away.

    Args:
        desired: the versions that shall answer, with the prints of their files.
        versions: those that are known, whatever became of them.
        now: on the clock of ``retry_at``.
        slots: how many may begin to load now.
        gone: nothing of this model shall answer any more.
    """
    load: list[int] = []
    queue: list[int] = []
    again: list[float] = []
    for number in sorted(desired, reverse=True):
        state = versions.get(number)
        if state is not None and not _due(state, desired[number], now):
            if state.phase is Phase.END and state.retry_at is not None:
                again.append(state.retry_at)
            continue
        if len(load) < slots:
            load.append(number)
        elif state is None or state.phase is Phase.END:
            queue.append(number)
    superfluous = sorted(versions.keys() - desired.keys())
    ready = _in(Phase.AVAILABLE, versions)
    leave = tuple(n for n in superfluous if n in ready) if gone or ready & desired.keys() else ()
    end = tuple(n for n in superfluous if versions[n].phase is Phase.START)
    return Steps(tuple(load), tuple(queue), leave, end, min(again, default=None))


def _due(state: State, files: str, now: float) -> bool:
    """Whether a known version can begin to load."""
    if state.phase is Phase.START or (state.phase is Phase.AVAILABLE and state.stale):
        return True
    if state.phase is not Phase.END:
        return False
    if not state.failed or state.print != files:
        return True
    return state.retry_at is not None and state.retry_at <= now


def _in(phase: Phase, versions: Mapping[int, State]) -> set[int]:
    return {number for number, state in versions.items() if state.phase is phase}


def labels(
    desired: Mapping[str, int],
    current: Mapping[str, int],
    ready: Collection[int],
    *,
    allow_unavailable: bool,
) -> dict[str, int]:
    """Which version each label means now: the wanted one as soon as it answers, till then who had
    it, if it still does.

    With ``allow_unavailable`` a label may mean a version that does not answer yet, but is not taken
    from one that does.
    """
    made = {}
    for label, number in desired.items():
        before = current.get(label)
        if number in ready:
            made[label] = number
        elif before is not None and before in ready:
            made[label] = before
        elif allow_unavailable:
            made[label] = number
    return made
