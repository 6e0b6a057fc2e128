"""How many of the rows that wait are worth running together: fewer, where they cost no more apart.

Running together pays where a call is dear in itself, or reads its weights from memory for all rows at once. Of a model
that computes long on each row, such as one for images, it does not: what lies between its layers outgrows the caches,
the rows are copied to one place first, and the first caller waits for the last.
"""

from collections import deque

from cloud_ml.serving.signatures import Shape

TRIES = 3
"""Runs of a size before it is judged, by the least of the last ``LOOKED_AT``."""
LOOKED_AT = 8
EVEN = 0.05
"""How much more a row may cost in smaller batches: answers come sooner for it."""
CALL_S = 0.00005
"""What a run costs beside the model: a thread is woken, and the event loop after it."""
KINDS = 256
"""Shapes that are remembered; when there are more, all are forgotten."""


class _Costs:
    """What a row cost, by the length in bits of the number of rows in the batch."""

    __slots__ = ("by_size", "runs")

    def __init__(self) -> None:
        self.by_size: dict[int, deque[float]] = {}
        self.runs = 0

    def add(self, size: int, cost: float) -> bool:
        """A run ended; whether it is time to judge: of a new size each time, later once all looked at is new."""
        lately = self.by_size.setdefault(size, deque(maxlen=LOOKED_AT))
        lately.append(cost)
        self.runs += 1
        return len(lately) < LOOKED_AT or not self.runs % LOOKED_AT

    def least(self) -> dict[int, float]:
        """Of the sizes that were run often enough."""
        return {size: min(each) for size, each in self.by_size.items() if len(each) >= TRIES}


class Portions:
    """The most rows of each shape that run together; those without a limit run together whatever their number."""

    def __init__(self, least_s: float) -> None:
        self._least_s = least_s
        self._costs: dict[tuple[Shape, ...], _Costs] = {}
        self.limits: dict[tuple[Shape, ...], int] = {}

    def ran(self, tails: tuple[Shape, ...], rows: int, seconds: float) -> None:
        """A long run ended. Sizes are tried downwards, for as long as rows cost no more so."""
        if rows < 1:
            return
        costs = self._costs.get(tails)
        if costs is None:
            if len(self._costs) >= KINDS:
                self._costs.clear()
                self.limits.clear()
            costs = self._costs[tails] = _Costs()
        if costs.add(rows.bit_length(), (seconds + CALL_S) / rows):
            self._judge(tails, costs.least())

    def _judge(self, tails: tuple[Shape, ...], known: dict[int, float]) -> None:
        """Set the limit: the smallest size that is as good as the best, or one below it that is still to be tried."""
        if not known:
            return
        enough = (1 + EVEN) * min(known.values())
        size = min(each for each, cost in known.items() if cost <= enough)
        took = known[size] * (1 << size - 1)
        if size - 1 not in known and size > 1 and took > 2 * self._least_s:  # half of it is worth a run of its own
            size -= 1
        if size < max(known):
            self.limits[tails] = 1 << size - 1  # halves, so that the last batch is no small one
        else:
            self.limits.pop(tails, None)
