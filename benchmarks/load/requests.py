"""Fifty submits and five hundred reads a second for a while, all jobs but one staying queued.

Times count from when a request was due, so that who waits behind a slow one is counted as well. The
client runs on the same cores; its CPU is told apart. Run:
``python benchmarks/run.py load.requests``.
"""

from __future__ import annotations

import asyncio
import os
import time

from harness import KEY, SECRET, Figure, Server, high, serving, temporary_folder, upload, wheel

from load.cost import HOLDS, document, hold, status
from load.machine import cpu_seconds, memory_mb
from load.paced import Kind, check, paced
from load.wire import Answer, Signer, ask, connect

SECONDS = float(os.environ.get("LOAD_S", "20"))
SUBMITS, READS = 50, 500
SHARES = {"describe": 0.4, "poll": 0.3, "list": 0.1, "logs": 0.1, "events": 0.1}


def run() -> list[Figure]:
    with temporary_folder() as folder, serving(CLOUDML_CONTROLLER_MAX_RUNNING_JOBS=1) as server:
        uri = upload(server.client(), wheel(folder, HOLDS))
        return asyncio.run(_load(server, uri, hold(server, uri)))


async def _load(server: Server, uri: str, holder: str) -> list[Figure]:
    sign = Signer(KEY, SECRET)
    wire = await connect(server.endpoint)
    for number in range(60):
        assert (
            await ask(wire, sign.request("POST", "/api/v1/jobs", document(f"queued-{number}", uri)))
        ).status == 201
    reads = _reads(sign, holder)
    total = int(SUBMITS * SECONDS)
    submit = Kind(
        "submit",
        [
            sign.request("POST", "/api/v1/jobs", document(f"load-{number}", uri))
            for number in range(total)
        ],
        status(201),
    )
    before, client = cpu_seconds(server.pids[:1]), time.process_time()
    begin = time.monotonic()
    await asyncio.gather(
        paced(server.endpoint, submit, SUBMITS, SECONDS),
        *(paced(server.endpoint, kind, READS * SHARES[kind.name], SECONDS) for kind in reads),
    )
    elapsed = time.monotonic() - begin
    used, own = cpu_seconds(server.pids[:1]) - before, time.process_time() - client
    check([submit, *reads])
    await _all_are_there(server, sign, total)
    wire.close()
    print("  " + "; ".join(kind.line() for kind in (submit, *reads)))
    memory = memory_mb(server.tree)
    shares = (
        f"server {100 * used / elapsed:.0f} % of a core, this client {100 * own / elapsed:.0f} %"
    )
    print(f"  for {elapsed:.0f} s: {shares}; memory of the server's tree then {memory:.0f} MB")
    all_reads = [one for kind in reads for one in kind.took]
    return [
        Figure(f"{SUBMITS} submits/s beside the reads, p99", high(submit.took), "ms", 100),
        Figure(f"{READS} reads/s beside the submits, p99", high(all_reads), "ms", 50),
        Figure("server CPU of both together", 100 * used / elapsed, "%", 100, note="of one core"),
    ]


def _reads(sign: Signer, holder: str) -> list[Kind]:
    def read(name: str, target: str, word: bytes) -> Kind:
        def good(answer: Answer) -> bool:
            return answer.status == 200 and word in answer.body

        return Kind(name, [sign.request("GET", target)], good)

    each = [sign.request("GET", f"/api/v1/jobs/queued-{number}") for number in range(50)]
    polls = [
        sign.request("GET", f"/api/v1/jobs/queued-{number}", If_None_Match="*")
        for number in range(50)
    ]
    return [
        Kind(
            "describe",
            each,
            lambda answer: answer.status == 200 and b'"phase":"Queued"' in answer.body,
        ),
        Kind("poll", polls, status(304)),
        read("list", "/api/v1/jobs?limit=50", b'"next":'),
        read("logs", f"/api/v1/jobs/{holder}/logs?lines=50", b"line 1999 of"),
        read("events", "/api/v1/jobs/queued-3/events", b"submitted by"),
    ]


async def _all_are_there(server: Server, sign: Signer, total: int) -> None:
    """Every submit that was answered stands in the list, once."""
    wire, names, after = await connect(server.endpoint), [], ""
    while True:
        page = (
            await ask(wire, sign.request("GET", f"/api/v1/jobs?limit=1000&name=load-*{after}"))
        ).document()
        items = page["items"]
        assert isinstance(items, list)
        names += [item["name"] for item in items]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    wire.close()
    if sorted(names) != sorted(f"load-{number}" for number in range(total)):
        raise SystemExit(f"{total} jobs were acknowledged and {len(names)} are listed")


if __name__ == "__main__":
    for figure in run():
        print(figure)
