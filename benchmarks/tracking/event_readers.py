"""Reads one event file with one reader, in that reader's own environment:
``python event_readers.py READER FILE``.

Prints a JSON document: how many points there are, their sum, the seconds of processor time that
reading took, and the peak of memory in MB.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

Values = Callable[[], Iterable[float]]
"""What was read. The work until it is there is measured, and what this call does is not."""


def read_ours(file: str) -> Values:
    values = [value for piece in _pieces(file) for value in piece]
    return lambda: values


def count_ours(file: str) -> Values:
    """Only the number of points: to keep them for their sum would take memory of its own."""
    points = sum(map(len, _pieces(file)))
    return lambda: (0.0 for _ in range(points))


def _pieces(file: str) -> Iterator[list[float]]:
    """The values of each piece, which is read as the collector reads it."""
    from cloud_ml.collector.main import PIECE_BYTES
    from cloud_ml.tracking.event_files import EventFileReader, Session

    reader, at, session = EventFileReader(), 0, Session()
    descriptor = os.open(file, os.O_RDONLY)
    size = os.fstat(descriptor).st_size
    while at < size:
        data = os.pread(descriptor, PIECE_BYTES, at)
        read = reader.read(data, offset=at, size=size, session=session)
        assert read.taken, f"{read.broken or 'nothing'} at byte {at}"
        at, session = at + read.taken, read.sessions[-1]
        yield [value for _, _, _, value in read.scalars]
    os.close(descriptor)


def read_tensorboard(file: str) -> Values:
    from tensorboard.backend.event_processing.event_accumulator import (
        SCALARS,
        TENSORS,
        EventAccumulator,
    )
    from tensorboard.util.tensor_util import make_ndarray

    # 0: keep all points. By default it keeps a random sample of 10,000 and of 10.
    found = EventAccumulator(file, size_guidance={SCALARS: 0, TENSORS: 0})
    found.Reload()

    def values() -> Iterator[float]:
        for tag in found.Tags()[SCALARS]:
            yield from (point.value for point in found.Scalars(tag))
        for tag in found.Tags()[TENSORS]:
            yield from (float(make_ndarray(point.tensor_proto)) for point in found.Tensors(tag))

    return values


def read_tbparse(file: str) -> Values:
    from tbparse import SummaryReader

    found = SummaryReader(file, event_types={"scalars", "tensors"})
    frames = [frame for frame in (found.scalars, found.tensors) if len(frame)]
    return lambda: (float(value) for frame in frames for value in frame["value"])


READERS = {
    "ours": read_ours,
    "count": count_ours,
    "tensorboard": read_tensorboard,
    "tbparse": read_tbparse,
}


def _peak_mb() -> float:
    """Of this program. ``ru_maxrss`` would have that of the process which started it, too."""
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)[0]) / 1024


def main() -> None:
    read, file = READERS[sys.argv[1]], sys.argv[2]
    read(sys.argv[3])  # a short file first: imports are not what is measured
    began = time.process_time()
    values = read(file)
    took_s, peak = time.process_time() - began, _peak_mb()
    points = list(values())
    # fsum is exact: the order of points does not matter.
    answer = {"points": len(points), "sum": math.fsum(points), "took_s": took_s, "peak_mb": peak}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
