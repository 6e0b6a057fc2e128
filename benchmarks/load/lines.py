"""A million lines of output a minute, from one job and from ten together, with somebody who
follows.

Each log must then be complete, line by line; a log beyond its cap must have lost its middle, say
so, and go on. Run: ``python benchmarks/run.py load.lines``.
"""

from __future__ import annotations

import os
import re
import threading

from harness import Figure, Server, finished, serving, temporary_folder, upload, wheel

from cloud_ml.models.jobs.train_job import TrainJob
from load.machine import cpu_seconds

SECONDS = float(os.environ.get("LOAD_S", "20"))
A_MINUTE = 1_000_000
CAP = 1 << 20
_LINE = "step of the training, loss 0.123456, accuracy 0.98"
_GAP = re.compile(r"\n\[… (\d+) bytes of the log dropped here[^\n]*\n".encode())
PRINTS = (
    f"""
LINE = {_LINE!r}
"""
    + """
import sys, time
rate, seconds = int(sys.argv[1]), float(sys.argv[2])
begin, printed, total = time.monotonic(), 0, int(rate * seconds)
while printed < total:
    due = min(int((time.monotonic() - begin) * rate) + 1, total)
    sys.stdout.write("".join(f"{number:09d} {LINE}\\n" for number in range(printed, due)))
    sys.stdout.flush()
    printed = due
    time.sleep(0.01)
sys.stdout.write(f"took {time.monotonic() - begin:.3f}\\n")
"""
)


def run() -> list[Figure]:
    with temporary_folder() as folder, serving(CLOUDML_CONTROLLER_MAX_RUNNING_JOBS=12) as server:
        uri = upload(server.client(), wheel(folder, PRINTS))
        finished(
            server.calls(),
            server.calls().submit(TrainJob("warm", "trainer.task", uri, job_args=["10", "0.1"])),
        )
        found = [*_print(server, uri, 1), *_print(server, uri, 10)]
    with temporary_folder() as folder, serving(CLOUDML_ENGINE_LOG_LIMIT_BYTES=CAP) as server:
        return [*found, _beyond_the_cap(server, upload(server.client(), wheel(folder, PRINTS)))]


def _print(server: Server, uri: str, jobs: int) -> list[Figure]:
    rate = int(
        1.02 * A_MINUTE / 60 / jobs
    )  # a little more, since the last of them come when they have come
    calls, before = server.calls(), cpu_seconds(server.pids[:1])
    words = [str(rate), str(SECONDS)]
    submitted = [
        calls.submit(TrainJob(f"by-{jobs}-{n}", "trainer.task", uri, job_args=words))
        for n in range(jobs)
    ]
    followed: list[bytes] = []
    follower = threading.Thread(target=_follow, args=(server, submitted[0].name, followed))
    follower.start()
    for job in submitted:
        finished(calls, job)
    share = 100 * (cpu_seconds(server.pids[:1]) - before) / SECONDS
    follower.join()
    took = []
    for job in submitted:
        with calls.log(job.name) as log:
            content = log.read()
        took.append(_complete(content, rate))
    if b"".join(followed) != _log(server, submitted[0].name):
        raise SystemExit("what the follower got is not the log")
    reached = min(60 * jobs * int(rate * SECONDS) / one for one in took)
    return [
        Figure(
            f"lines a minute from {jobs} job{'s' * (jobs > 1)}, all kept",
            reached,
            "lines",
            A_MINUTE,
            least=True,
        ),
        Figure(
            f"server CPU meanwhile, with a follower ({jobs})", share, "%", 50, note="of one core"
        ),
    ]


def _follow(server: Server, name: str, followed: list[bytes]) -> None:
    with server.calls().log(name, follow=True) as log:
        followed.extend(log)


def _log(server: Server, name: str) -> bytes:
    with server.calls().log(name) as log:
        return bytes(log.read())


def _complete(content: bytes, rate: int) -> float:
    """The seconds that it took; every line must be there, once and in order."""
    *lines, last = content.decode().splitlines()
    numbers = [int(line[:9]) for line in lines]
    if numbers != list(range(int(rate * SECONDS))):
        raise SystemExit(
            f"a log of {int(rate * SECONDS)} lines has {len(numbers)}, or in another order"
        )
    return float(last.removeprefix("took "))


def _beyond_the_cap(server: Server, uri: str) -> Figure:
    rate, calls = A_MINUTE // 60, server.calls()
    for name, seconds in (("warm", "0.01"), ("capped", "4")):
        finished(
            calls, calls.submit(TrainJob(name, "trainer.task", uri, job_args=[str(rate), seconds]))
        )
    content = _log(server, "capped")
    parts = _GAP.split(content)
    whole = 4 * rate * len(f"{0:09d} {_LINE}\n")
    if len(parts) != 3 or not content.startswith(b"000000000 ") or b"\ntook " not in content[-40:]:
        raise SystemExit("a log beyond its cap does not have its beginning, a mark and its end")
    kept, dropped = len(parts[0]) + len(parts[2]), int(parts[1])
    if not whole <= kept + dropped <= whole + 40:
        raise SystemExit(f"of {whole} bytes {kept} are there and {dropped} are said to be dropped")
    return Figure(
        "a log beyond its cap keeps of it",
        kept / CAP,
        "",
        1.0,
        note="beginning, end and a true mark",
    )


if __name__ == "__main__":
    for figure in run():
        print(figure)
