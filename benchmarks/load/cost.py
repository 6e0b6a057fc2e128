"""What a request costs the server: CPU of its process for each of the commonest, from eight callers
at once.

The figure that survives a busy machine. The floor is ``/healthz``, which is answered without
looking at anything. Run: ``python benchmarks/run.py load.cost``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

from harness import KEY, SECRET, Figure, Server, serving, temporary_folder, upload, wheel

from cloud_ml.models.jobs.train_job import TrainJob
from load.machine import cpu_seconds
from load.wire import Answer, Signer, Wire, ask, connect

CALLERS, ROUNDS, REPEATS, JOBS = 8, 800, 3, 60
LINES = 2000
PRINTS = (
    f"for number in range({LINES}): print('line', number, 'of what a job prints', flush=False)\n"
)
HOLDS = PRINTS + "import sys, time; sys.stdout.flush(); time.sleep(3600)\n"
"""A program that prints, and then holds the only place."""


def hold(server: Server, uri: str, *, name: str = "holder") -> str:
    """Start the job that holds the only place, wait until it has printed; the jobs after it stay
    queued.
    """
    calls = server.calls()
    calls.submit(TrainJob(name, "trainer.task", uri))
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with calls.log(name) as log:
            if log.read().count(b"\n") >= LINES:
                return name
        time.sleep(0.1)
    raise SystemExit("the job that holds the place does not print")


def document(name: str, uri: str) -> dict[str, object]:
    """A job as it is submitted."""
    return {
        "job_name": name,
        "module_name": "trainer.task",
        "trainer_uri": uri,
        "labels": {"made": "bench"},
    }


def status(*expected: int) -> Callable[[Answer], bool]:
    """Answers with such a status."""
    return lambda answer: answer.status in expected


async def measure(server: Server, requests: list[bytes], good: Callable[[Answer], bool]) -> float:
    """Microseconds of the server's CPU for one request, with some always under way: the best of
    a few runs.
    """
    wires = [await connect(server.endpoint) for _ in range(CALLERS)]
    best, each = float("inf"), len(requests) // REPEATS
    for number in range(REPEATS):
        mine = iter(requests[number * each : (number + 1) * each])
        before = cpu_seconds(server.pids[:1])
        await asyncio.gather(*(_one_after_another(wire, mine, good) for wire in wires))
        await asyncio.sleep(0.3)  # what a submit sets going belongs to it
        best = min(best, (cpu_seconds(server.pids[:1]) - before) / each)
    for wire in wires:
        wire.close()
    return 1e6 * best


async def _one_after_another(
    wire: Wire, requests: Iterator[bytes], good: Callable[[Answer], bool]
) -> None:
    for request in requests:
        answer = await ask(wire, request)
        if not good(answer):
            raise SystemExit(f"a wrong answer: {answer.status} {answer.body[:300]!r}")


def run() -> list[Figure]:
    with temporary_folder() as folder, serving(CLOUDML_CONTROLLER_MAX_RUNNING_JOBS=1) as server:
        uri = upload(server.client(), wheel(folder, HOLDS))
        holder = hold(server, uri)
        return asyncio.run(_all(server, uri, holder))


async def _all(server: Server, uri: str, holder: str) -> list[Figure]:
    sign = Signer(KEY, SECRET)
    wire = await connect(server.endpoint)
    for number in range(JOBS):
        made = await ask(
            wire, sign.request("POST", "/api/v1/jobs", document(f"queued-{number}", uri))
        )
        assert made.status == 201, made.body
    one = "/api/v1/jobs/queued-7"
    tag = (
        (await ask(wire, sign.request("GET", one)))
        .head.split(b"etag: ")[1]
        .split(b"\r")[0]
        .decode()
    )

    def repeated(target: str, **headers: str) -> list[bytes]:
        return [sign.request("GET", target, **headers)] * (ROUNDS * REPEATS)

    def page(answer: Answer) -> bool:
        return answer.status == 200 and answer.body.count(b'"uid"') == 50

    def tail(answer: Answer) -> bool:
        return answer.status == 200 and f"line {LINES - 1} of".encode() in answer.body

    submits = [
        sign.request("POST", "/api/v1/jobs", document(f"cost-{number}", uri))
        for number in range(ROUNDS * REPEATS)
    ]
    floor = await measure(
        server, [b"GET /healthz HTTP/1.1\r\nHost: bench\r\n\r\n"] * (ROUNDS * REPEATS), status(200)
    )
    rows = [
        ("describe a job", repeated(one), status(200), 500.0),
        (
            "ask whether a job has changed (304)",
            repeated(one, If_None_Match=tag),
            status(304),
            450.0,
        ),
        ("list the last 50", repeated("/api/v1/jobs?limit=50"), page, 1500.0),
        (
            "the last 50 lines of a log",
            repeated(f"/api/v1/jobs/{holder}/logs?lines=50"),
            tail,
            1000.0,
        ),
        ("submit, with all that follows while it is queued", submits, status(201), 2500.0),
    ]
    figures = [Figure("server CPU: GET /healthz", floor, "us", 250.0)]
    for what, requests, good, target in rows:
        cost = await measure(server, requests, good)
        figures.append(Figure(f"server CPU: {what}", cost, "us", target, floor, "/healthz"))
    wire.close()
    return figures


if __name__ == "__main__":
    for figure in run():
        print(figure)
