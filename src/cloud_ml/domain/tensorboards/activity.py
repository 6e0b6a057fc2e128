"""When a TensorBoard pauses because nobody looks at it, and when it goes on. Pure."""

from __future__ import annotations

from cloud_ml.domain.services.routes import Figures
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.domain.workloads.spec import Desired


def desired_for(desired: Desired, phase: Phase, figures: Figures | None, idle_s: float) -> Desired:
    """What is to be wanted of a TensorBoard from now on.

    Args:
        desired: What is wanted now.
        phase: Where it stands.
        figures: What the gateway counted; ``None`` where it has not said anything yet.
        idle_s: It pauses after so many seconds without a request.
    """
    if figures is None:
        return desired
    if desired is Desired.PAUSED and (figures.waiting or figures.in_flight):
        return Desired.RUN
    idle = not figures.waiting and not figures.in_flight and figures.quiet_s >= idle_s
    if desired is Desired.RUN and phase is Phase.RUNNING and idle:
        return Desired.PAUSED
    return desired
