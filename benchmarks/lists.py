"""Lists of jobs over HTTP in a database of 100,000 and of a million. Run:
``python benchmarks/lists.py``.
"""

from __future__ import annotations

import time

import seed
from harness import (
    STAMP,
    Figure,
    Server,
    finished,
    high,
    median,
    temporary_folder,
    timed,
    train_job,
    upload,
    wheel,
)

from cloud_ml.sdk.jobs.filters import JobFilters

JOBS, REQUESTS = (100_000, 1_000_000), 300
SETTLED_S = 4.0
"""A controller that has just started looks through all jobs once."""


def run() -> list[Figure]:
    found, there = [], 0
    with temporary_folder() as folder:
        server = Server(folder)
        try:
            server.start()
            client, calls = server.client(), server.calls()
            finished(calls, calls.submit(train_job("first", upload(client, wheel(folder, STAMP)))))
            for count in JOBS:
                server.stop()
                seed.copies(server.data / "state.db", "first", range(there, count))
                there = count
                server.start()
                time.sleep(SETTLED_S)
                for which, state in (("last 50", None), ("last 50 that failed", "Failed")):
                    found += measure(f"list {which} of {count:,}", server, state)
            return found
        finally:
            server.stop()


def measure(what: str, server: Server, state: str | None) -> list[Figure]:
    calls = server.calls()

    def page() -> int:
        return len(list(calls.all(JobFilters(state=state), limit=50)))

    assert page() == 50
    times = [timed(page) for _ in range(REQUESTS)]
    return [
        Figure(f"{what}, median", median(times), "ms", 3),
        Figure(f"{what}, p99", high(times), "ms", 10),
    ]


if __name__ == "__main__":
    for figure in run():
        print(figure)
