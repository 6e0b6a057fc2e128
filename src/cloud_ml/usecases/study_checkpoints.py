"""Of which trials a study keeps the checkpoints: what is asked for is checked, and shown."""

from __future__ import annotations

from cloud_ml.errors import InvalidRequest
from cloud_ml.models.common import check_count, refuse
from cloud_ml.models.study import NewStudy

_ALL, _BEST = "all", "best"


def read_kept_checkpoints(new: NewStudy, most: int) -> int | None:
    """Of how many of the best trials the checkpoints are kept; ``None`` for all trials.

    Raises:
        InvalidRequest: It is none of what is allowed, or the study does not know its checkpoints.
    """
    asked = new.keep_checkpoints
    text = asked.strip().lower() if isinstance(asked, str) else asked
    if text == _ALL:
        return None
    if new.local:
        allowed = "all, as a loop of yours runs the trials and keeps their checkpoints"
        raise refuse("keep_checkpoints", asked, allowed)
    try:
        count = 1 if text == _BEST else check_count("keep_checkpoints", text, least=1, most=most)
    except InvalidRequest:
        allowed = f"all, best, or a number of trials, 1 to {most}"
        raise refuse("keep_checkpoints", asked, allowed) from None
    if count > 1 and not isinstance(new.objective, str) and len(new.objective) > 1:
        allowed = "all, or best, which keeps those of the Pareto front"
        raise refuse("keep_checkpoints", asked, allowed)
    return count


def show_kept_checkpoints(count: int | None) -> str | int:
    """The same as it is shown."""
    if count is None:
        return _ALL
    return _BEST if count == 1 else count
