"""How many of the rows that wait are worth running together: fewer, where they cost no more apart.

Running together pays where a call is dear in itself, or reads its weights from memory for all rows
at once. Of a model that computes long on each row, such as one for images, it does not: what lies
between its layers outgrows the caches, the rows are copied to one place first, and the first caller
waits for the last.
"""

from cloud_ml.serving.signatures import Shape

TRIES = 10
"""Runs of each of two sizes, by turns, before the least of them are compared."""
FIRST = 3
"""The same on the way down from what came first, as long as a row costs no more than ``EVEN``:
what is lost by going too far is little, and found out soon.
"""
PATIENCE = 4 * TRIES
"""Runs after which a comparison is given up: too few rows wait, or they come in portions that do
not fit.
"""
REST_S, LONGEST_REST_S = 1.0, 16.0
"""Seconds of running between two comparisons: twice as many after each that changed nothing."""
SOONER = 0.03
"""How much more a row may cost in batches of half the size: answers come sooner for it."""
WORTH = 0.03
"""How much less it has to cost in batches of twice the size."""
FEW = 4
"""Batches that wait, below which it counts more when the first answer comes than when the last
one does.
"""
EVEN = 0.1
"""How much more a row may cost in batches of half the size, where few wait."""
CALL_S = 0.00012
"""What a run costs beside the model: a thread is woken, then the event loop, and what both had
in caches is gone.
"""
KINDS = 256
"""Shapes that are remembered; when there are more, all are forgotten."""


class _Search:
    """The best size of batches, as the length in bits of the number of rows.

    A size is compared with its neighbours by turns, so that what else the machine does harms both
    alike; a few runs for each now and then, as a model may become another one with what else is
    served. As long as the largest size is the best, nothing is limited, and the largest is what
    comes.
    """

    __slots__ = (
        "_best",
        "_enough",
        "_even",
        "_least_s",
        "_left_s",
        "_rest_s",
        "_rival",
        "_runs",
        "_step",
        "_top",
        "_tries",
    )

    def __init__(self, size: int, least_s: float) -> None:
        self._least_s = least_s
        self._tries: dict[int, list[float]] = {}
        self._open(size)

    def _open(self, size: int) -> None:
        """Begin anew, with nothing limited and batches of this size."""
        self._top = self._best = size
        self._step, self._enough, self._even = -1, FIRST, False
        self._left_s, self._rest_s = 0.0, REST_S / 2
        self._leave()

    @property
    def goes_on(self) -> bool:
        """Whether also runs are to be told that are not long."""
        return bool(self._rival) or self._best < self._top

    def limit(self, waiting: int, most: int) -> int:
        """The most rows of the next batch."""
        size, tries = self._best, self._tries
        if self._rival and len(tries[self._rival]) < len(tries[size]):
            size = self._rival
        rows = 1 << size - 1  # halves, so that the last batch is no small one
        if self._even and not self._rival and waiting < FEW * rows:
            return rows >> 1
        return rows if size < self._top else most

    def ran(self, rows: int, seconds: float) -> None:
        """A batch was run."""
        size, cost = rows.bit_length(), seconds / rows
        unlimited = self._top in (self._best, self._rival)
        if unlimited and size > self._top:
            self._open(size)
        if not self._rival:
            self._left_s -= seconds
            if self._left_s <= 0:
                self._compare(cost)
        if not self._rival:
            return
        self._runs += 1
        if unlimited and size > min(self._best, self._rival):
            size = self._top  # what came of those that might have been as many
        if size in self._tries:
            self._tries[size].append(cost)
            self._judge(cost)
        if self._runs > PATIENCE:
            self._pause()

    def _compare(self, cost: float) -> None:
        """Begin to compare with the neighbour whose turn it is, if there is one."""
        rival = self._best + self._step
        if not 1 <= rival <= self._top or (
            self._step < 0 and cost * (1 << rival - 1) < self._least_s
        ):
            self._pause()
            return
        self._rival, self._runs = rival, 0
        self._tries = {self._best: [], rival: []}

    def _judge(self, cost: float) -> None:
        mine, others = self._tries[self._best], self._tries[self._rival]
        if self._best == self._top and len(others) > len(mine) + 2:
            self._open(self._rival)  # so many do not wait any more
        elif min(len(mine), len(others)) >= self._enough:
            smaller, first = self._rival < self._best, self._enough < TRIES
            sooner = EVEN if first else SOONER
            # The least of several runs: whatever else the machine does can only add to a run.
            if min(others) <= min(mine) * (1 + sooner if smaller else 1 - WORTH):
                self._best, self._even, self._rest_s = self._rival, False, REST_S / 2
                self._leave()
                self._compare(cost)
            else:
                self._even = min(others) <= min(mine) * (1 + EVEN) if smaller else self._even
                self._pause()
                if first:  # that was a glance, and most is to be gained there
                    self._step = -1

    def _pause(self) -> None:
        self._step, self._enough = -self._step, TRIES
        self._left_s = self._rest_s = min(2 * self._rest_s, LONGEST_REST_S)
        self._leave()

    def _leave(self) -> None:
        """Compare nothing."""
        self._rival, self._runs = 0, 0
        self._tries = {}


class BatchSizer:
    """The most rows of each shape that run together; those that never took long run together
    whatever their number.
    """

    def __init__(self, least_s: float) -> None:
        self._least_s = least_s
        self.searches: dict[tuple[Shape, ...], _Search] = {}

    def limit(self, tails: tuple[Shape, ...], waiting: int, most: int) -> int:
        """The most rows of the next batch, where so many requests wait; ``most`` where nothing
        else is known.
        """
        search = self.searches.get(tails)
        return most if search is None else min(search.limit(waiting, most), most)

    def follows(self, tails: tuple[Shape, ...]) -> bool:
        """Whether also runs are to be told that are not long."""
        search = self.searches.get(tails)
        return search is not None and search.goes_on

    def ran(self, tails: tuple[Shape, ...], rows: int, seconds: float) -> None:
        """A long run ended, or one that ``follows``."""
        if rows < 1:
            return
        search = self.searches.get(tails)
        if search is None:
            if len(self.searches) >= KINDS:
                self.searches.clear()
            search = self.searches[tails] = _Search(rows.bit_length(), self._least_s)
        search.ran(rows, seconds + CALL_S)
