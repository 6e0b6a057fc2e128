"""What pretended processes of the fake engine do, by the words of their commands.

======================================  ======================================================
``("fake", "exit", "3")``               ends with this exit code; a text behind it is printed
``("fake", "print", "hello")``          prints the text and ends well
``("fake", "parameters")``              prints the parameters of its trial and ends well
``("fake", "resolve", NAME)``           prints the address of the gang's task of that name
``("fake", "wait")``                    waits until it is told or stopped
``("fake", "hang")``                    says ``ready``, and hangs in a function ``hang``
``("fake", "stubborn")``                ignores SIGTERM
``("fake", "leave")``                   says ``ready``, and ``leaving`` when it is stopped
``("fake", "notice")``                  prints the notice when it is stopped
``("fake", "report", "7")``             reports the step 7, and waits
``("fake", "append")``                  adds to an event file ten times a second
``("fake", "occupy", "20000")``         says ``ready``, and has the port until it ends
``("fake", "listen", NAME, TEXT)``      sends the text to each who connects, until it is stopped
``("fake", "compute", "7")``            uses the processor, and ends well. With a step, which it
                                        reports, it cannot be told from one that hangs where
                                        processes wait in busy loops.
======================================  ======================================================
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cloud_ml.domain.workloads.progress import Milestone, Progress
from cloud_ml.engines.gang import GangKey, ProcessPlan
from cloud_ml.models import parameter_file

if TYPE_CHECKING:
    from cloud_ml.engines.fake.engine import FakeEngine


def run(engine: FakeEngine, key: GangKey, plan: ProcessPlan) -> None:
    """Do what the command of a process says. One that is not known waits."""
    words = plan.command[1:] if plan.command[0] == "fake" else ("wait",)
    if program := _PROGRAMS.get(words[0]):
        program(_Process(engine, key, plan, words[1:]))


@dataclass(frozen=True)
class _Process:
    """A pretended process, as its program sees it."""

    engine: FakeEngine
    key: GangKey
    plan: ProcessPlan
    arguments: Sequence[str]

    def write(self, text: str) -> None:
        self.engine.write(self.key, self.plan.name, text.encode())

    def exit(self, code: int) -> None:
        self.engine.exit(self.key, self.plan.name, code)

    def at_end(self, close: Callable[[], object]) -> None:
        """Have a function called when the gang is over."""
        self.engine.machine.at_end.setdefault(self.key, []).append(close)


def _print(process: _Process) -> None:
    process.write(f"{process.arguments[0]}\n")
    process.exit(0)


def _exit(process: _Process) -> None:
    code, *texts = process.arguments
    if texts:
        process.write(f"{texts[0]}\n")
    process.exit(int(code))


def _print_parameters(process: _Process) -> None:
    process.write(process.plan.environment[parameter_file.VARIABLE])
    process.exit(0)


def _resolve(process: _Process) -> None:
    address = process.engine.machine.places.address_of(process.key, process.arguments[0])
    process.write(f"{address or 'no such name'}\n")
    process.exit(0 if address else 1)


def _begin_log(process: _Process) -> None:
    process.write("\n")


def _say_ready(process: _Process) -> None:
    process.write("ready\n")


def _report(process: _Process) -> None:
    engine, key, name = process.engine, process.key, process.plan.name
    step = int(process.arguments[0])
    engine.machine.reports[key, name] = Progress(datetime.now(UTC), step)
    engine.reach(key, Milestone(step))
    entry = {"step": step, "time": time.time(), "metrics": {"loss": 0.5}}
    engine.report_metrics(key, name, json.dumps(entry).encode() + b"\n")
    engine.write_event_file(key.job_uid, "work/logs/events.out.tfevents.1", b"events")
    process.write("ready\n")


def _append(process: _Process) -> None:
    async def write() -> None:
        while True:
            uid, path = process.key.job_uid, "work/logs/events.out.tfevents.1"
            process.engine.write_event_file(uid, path, b"events")
            await asyncio.sleep(0.1)

    process.at_end(asyncio.get_running_loop().create_task(write()).cancel)
    process.write("ready\n")


def _compute(process: _Process) -> None:
    if not process.arguments or not process.engine.machine.plans[process.key].busy_waits:
        process.exit(0)


def _occupy(process: _Process) -> None:
    occupied, port = process.engine.machine.occupied, int(process.arguments[0])
    occupied[port] = process.key
    process.at_end(lambda: occupied.pop(port, None))
    process.write("ready\n")


def _listen(process: _Process) -> None:
    name, text = process.arguments[:2]
    listeners, uid = process.engine.machine.listeners, process.key.job_uid
    listener = socket.create_server(("127.0.0.1", 0))
    listeners[uid, name] = listener
    listener.setblocking(False)
    loop = asyncio.get_running_loop()

    def accept() -> None:
        with contextlib.suppress(OSError), listener.accept()[0] as connection:
            connection.sendall(text.encode())

    def close() -> None:
        del listeners[uid, name]
        loop.remove_reader(listener)
        listener.close()

    loop.add_reader(listener, accept)
    process.at_end(close)


_PROGRAMS: Mapping[str, Callable[[_Process], None]] = {
    "print": _print,
    "exit": _exit,
    "parameters": _print_parameters,
    "resolve": _resolve,
    "notice": _begin_log,
    "hang": _say_ready,
    "leave": _say_ready,
    "report": _report,
    "append": _append,
    "compute": _compute,
    "occupy": _occupy,
    "listen": _listen,
}
