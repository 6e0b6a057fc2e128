"""How long batches take, so that long ones go to a thread and short ones do not."""

from collections import deque

from cloud_ml.serving.signatures import Shape

LOOKED_AT = 8
"""Runs that are remembered of each kind of batch."""
KINDS = 1024
"""Kinds that are remembered; when there are more, all are forgotten."""


class LatencyEstimate:
    """The least that runs took lately, for batches of the same shapes and about as many rows.

    The least, because on a busy machine a run is now and then counted with what it waited for a
    core, and one in a thread with what it waited for the interpreter: such a one says nothing of
    the model, and must not send a quick model to a thread.
    """

    def __init__(self) -> None:
        self._took: dict[tuple[tuple[Shape, ...], int], deque[float]] = {}

    def least(self, tails: tuple[Shape, ...], rows: int) -> float:
        """Seconds; without end where no such batch was seen: its first run may compile."""
        took = self._took.get((tails, rows.bit_length()))
        return min(took) if took is not None else float("inf")

    def add(self, tails: tuple[Shape, ...], rows: int, seconds: float) -> None:
        """A batch was run."""
        took = self._took.get((tails, rows.bit_length()))
        if took is None:
            if len(self._took) >= KINDS:
                self._took.clear()
            took = self._took[tails, rows.bit_length()] = deque(maxlen=LOOKED_AT)
        took.append(seconds)
