"""One tenant floods the server while another works: what the other waits for.

The greedy one has hundreds of jobs queued and sixteen callers that list, submit and read logs as
fast as they are answered. Run: ``python benchmarks/run.py load.flood``.
"""

from __future__ import annotations

import asyncio
import os
import time

from harness import KEY, SECRET, Figure, Server, high, serving, temporary_folder, upload, wheel

from load.cost import document, status
from load.paced import Kind, check, paced
from load.wire import Answer, Signer, ask, connect

SECONDS = float(os.environ.get("LOAD_S", "20"))
QUEUED, CALLERS = 300, 16
SHORT = "import time; time.sleep(0.5)\n"


def run() -> list[Figure]:
    with temporary_folder() as folder, serving(CLOUDML_CONTROLLER_MAX_RUNNING_JOBS=2) as server:
        client = server.client()
        client.admin.create_org("patient")
        made = client.admin.create_user("pat", org="patient")
        key = client.admin.create_key(made.name, org="patient")
        patient = Signer(key.key.access_key, key.secret_key)
        from cloud_ml.client import CloudMlClient

        other = CloudMlClient(key.key.access_key, key.secret_key, server.endpoint)
        other.storage.create_bucket("patient-files")
        from cloud_ml.sdk.trainers.upload import send_trainer

        package = wheel(folder, SHORT)
        theirs = send_trainer(other.storage, str(package), "patient-files").uri
        return asyncio.run(_flood(server, upload(client, package), patient, theirs))


async def _flood(server: Server, uri: str, patient: Signer, theirs: str) -> list[Figure]:
    greedy, wire = Signer(KEY, SECRET), await connect(server.endpoint)
    for number in range(QUEUED):
        made = await ask(
            wire, greedy.request("POST", "/api/v1/jobs", document(f"greedy-{number}", uri))
        )
        assert made.status == 201, made.body
    stop = asyncio.Event()
    flood = [
        asyncio.create_task(_ask_on(server, greedy, uri, number, stop)) for number in range(CALLERS)
    ]
    await asyncio.sleep(1)
    first = await ask(wire, patient.request("POST", "/api/v1/jobs", document("patient-0", theirs)))
    assert first.status == 201, first.body
    began = time.monotonic()
    reads = [
        Kind("describe", [patient.request("GET", "/api/v1/jobs/patient-0")], status(200)),
        Kind("list", [patient.request("GET", "/api/v1/jobs?limit=50")], status(200)),
        Kind("events", [patient.request("GET", "/api/v1/jobs/patient-0/events")], status(200)),
        Kind(
            "submit",
            [
                patient.request("POST", "/api/v1/jobs", document(f"patient-x-{n}", theirs))
                for n in range(int(SECONDS))
            ],
            status(201),
        ),
    ]
    waits = asyncio.create_task(_until_started(server, patient, began))
    rates = [5.0, 2.0, 2.0, 1.0]
    await asyncio.gather(
        *(
            paced(server.endpoint, kind, rate, SECONDS)
            for kind, rate in zip(reads, rates, strict=True)
        )
    )
    waited = await waits
    stop.set()
    answered = sum(await asyncio.gather(*flood))
    check(reads)
    print(
        "  "
        + "; ".join(kind.line() for kind in reads)
        + f"; the flood was answered {answered / SECONDS:.0f} times/s"
    )
    return [
        Figure(
            "beside a flood: another tenant's requests, p99",
            high([t for k in reads for t in k.took]),
            "ms",
            1000,
        ),
        Figure("beside a flood: another tenant's next job starts in", waited, "s", 20),
    ]


async def _ask_on(
    server: Server, greedy: Signer, uri: str, number: int, stop: asyncio.Event
) -> int:
    """Ask without a pause; returns how often there was an answer. To be refused for asking too
    much is one.
    """
    wire, answered = await connect(server.endpoint), 0
    page = greedy.request("GET", "/api/v1/jobs?limit=1000")
    logs = greedy.request("GET", "/api/v1/jobs/greedy-0/logs")
    while not stop.is_set():
        submit = greedy.request("POST", "/api/v1/jobs", document(f"flood-{number}-{answered}", uri))
        for request in (page, logs, submit):
            answer = await ask(wire, request)
            if answer.status not in (200, 201, 429):
                raise SystemExit(f"the flood was answered {answer.status} {answer.body[:200]!r}")
            answered += 1
    wire.close()
    return answered


async def _until_started(server: Server, patient: Signer, began: float) -> float:
    """Seconds until the first job of the other tenant has started."""
    wire = await connect(server.endpoint)
    one = patient.request("GET", "/api/v1/jobs/patient-0")
    while time.monotonic() - began < 120:
        answer: Answer = await ask(wire, one)
        if answer.document()["started_at"] is not None:
            wire.close()
            return time.monotonic() - began
        await asyncio.sleep(0.1)
    raise SystemExit("the other tenant's job did not start in two minutes")


if __name__ == "__main__":
    for figure in run():
        print(figure)
