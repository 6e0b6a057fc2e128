"""When a gang is over: what the end of one of its processes means for the others. Pure.

Engines differ in how they learn of an end. What follows from it is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from cloud_ml.domain.observed import ObservedProcess
from cloud_ml.domain.workloads.reasons import Reason


def ends_gang(processes: Sequence[ObservedProcess], ended: ObservedProcess) -> bool:
    """Whether the gang is over because this process has ended; the engine stops the others then.

    The first process is the chief: its end, good or bad, is that of the gang. Another one may end
    well while the rest goes on. If it fails, the gang has failed.

    Args:
        processes: All processes of the gang, the chief first.
        ended: One of them, with the reason of its end.
    """
    return ended.name == processes[0].name or ended.reason is not Reason.COMPLETED
