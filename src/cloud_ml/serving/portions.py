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

AGAIN = 256
"""Runs after which the next smaller and the next larger size are tried again: what was learned of them may be old."""


class _Seen:
    """What rows of one shape cost: ``by_size`` has the length in bits of the number of rows in a batch."""

    __slots__ = ("by_size", "larger", "runs")

    def __init__(self) -> None:
        self.by_size: dict[int, deque[float]] = {}
        self.runs = 0
        self.larger = 0  # a size that is to be tried again, though smaller ones were better

    def add(self, size: int, cost: float) -> None:
        self.by_size.setdefault(size, deque(maxlen=LOOKED_AT)).append(cost)
        self.runs += 1
        if self.runs % AGAIN == 0:
            self.by_size.pop(size - 1, None)
            if self.by_size.pop(size + 1, None) is not None:
                self.larger = size + 1

    def known(self) -> dict[int, float]:
        """The least that a row cost lately, of sizes that can be judged."""
        return {size: min(each) for size, each in self.by_size.items() if len(each) >= TRIES}


class Portions:
    """The most rows of each shape that run together; those without a limit run together whatever their number."""

    def __init__(self, least_s: float) -> None:
        self._least_s = least_s
        self._seen: dict[tuple[Shape, ...], _Seen] = {}
        self.limits: dict[tuple[Shape, ...], int] = {}

    def ran(self, tails: tuple[Shape, ...], rows: int, seconds: float) -> None:
        """A long run ended. Sizes are tried downwards, for as long as rows cost no more so."""
        if rows < 1:
            return
        seen = self._seen.get(tails)
        if seen is None:
            if len(self._seen) >= KINDS:
                self._seen.clear()
                self.limits.clear()
            seen = self._seen[tails] = _Seen()
        seen.add(rows.bit_length(), (seconds + CALL_S) / rows)
        self._judge(tails, seen)

    def _judge(self, tails: tuple[Shape, ...], seen: _Seen) -> None:
        """Set the limit: the smallest size that is as good as the best, or one beside it that is still to be tried."""
        known = seen.known()
        if not known:
            return
        enough = (1 + EVEN) * min(known.values())
        size = min(each for each, cost in known.items() if cost <= enough)
        if seen.larger in known:
            seen.larger = 0
        took = known[size] * (1 << size - 1)
        if seen.larger:
            size = seen.larger
        elif size - 1 not in known and size > 1 and took > 2 * self._least_s:  # half of it is worth a run of its own
            size -= 1
        if seen.larger or size < max(known):
            self.limits[tails] = 1 << size - 1  # halves, so that the last batch is no small one
        else:
            self.limits.pop(tails, None)
