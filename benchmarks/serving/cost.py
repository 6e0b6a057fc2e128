"""Processor time of a request, over the whole tree of processes, beside others that run the same
ONNX file.

It is the figure that a busy machine spoils least; the least of some rounds is taken. Floors, in the
same run: the runtime called directly, for one request and for those of all callers at once, and an
echo on the same event loop. Run: ``python benchmarks/run.py serving.cost``.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from harness import Figure, temporary_folder
from peers.having import Absent

from serving import floors
from serving.models import IMAGE, SHAPES, rows, runtime, save
from serving.pressing import press, press_own
from serving.queries import OIP, TFS, V1, V2, Question, question
from serving.servers import OTHERS, OURS, Kind, Running, ours, theirs, version

SECONDS = float(os.environ.get("SERVING_S", "0.5"))
"""How long a server is asked for one figure."""
ROUNDS = int(os.environ.get("SERVING_ROUNDS", "12"))
CALLERS = 32
"""How many ask at once."""
ALONE = "onnxruntime, called directly"


@dataclass(frozen=True)
class Cell:
    """A way to ask. ``beside`` says by which way others are asked, who may not know ours; times are
    microseconds.

    Without a ``target`` it is the runtime's own time and a tenth. ``own`` is for gRPC's own client
    instead of h2load.
    """

    what: str
    way: str
    model: str
    target: float = 0.0
    count: int = 1
    clients: int = 1
    streams: int = 1
    beside: str = ""
    own: bool = False


CELLS = (
    Cell(
        "gRPC, 32 streams on one connection, linear", TFS, "linear", 14, streams=CALLERS, beside=OIP
    ),
    Cell("gRPC, 32 streams on one connection, MLP", TFS, "mlp", 20, streams=CALLERS, beside=OIP),
    Cell(
        "the same by the Open Inference Protocol, MLP", OIP, "mlp", 20, streams=CALLERS, beside=OIP
    ),
    Cell("gRPC, 32 connections, MLP", TFS, "mlp", 30, clients=CALLERS, beside=OIP),
    Cell(
        "gRPC, 32 streams, MLP with 32 rows", TFS, "mlp", 280, count=32, streams=CALLERS, beside=OIP
    ),
    Cell("gRPC, 32 streams, MobileNetV2 224x224", TFS, "cnn", streams=CALLERS, beside=OIP),
    Cell(
        "the same by gRPC's own client, MobileNetV2 224x224",
        TFS,
        "cnn",
        streams=CALLERS,
        beside=OIP,
        own=True,
    ),
    Cell("gRPC, 32 streams, CNN of four layers", TFS, "small_cnn", streams=CALLERS, beside=OIP),
    Cell(
        "the same by gRPC's own client, CNN of four layers",
        TFS,
        "small_cnn",
        streams=CALLERS,
        beside=OIP,
        own=True,
    ),
    Cell("REST v1, 32 connections, linear", V1, "linear", 18, clients=CALLERS, beside=V1),
    Cell("REST v1, 32 connections, MLP", V1, "mlp", 40, clients=CALLERS, beside=V1),
    Cell("an image as nested JSON, MobileNetV2 224x224", V1, "cnn", 9_000, clients=4, beside=V1),
    Cell("an image as flat JSON, MobileNetV2 224x224", V2, "cnn", 8_000, clients=4, beside=V2),
)


def run() -> list[Figure]:
    chosen = [cell for cell in CELLS if os.environ.get("SERVING_CELLS", "") in cell.what]
    with temporary_folder() as folder:
        files = {name: save(name, folder / name) for name in SHAPES}
        found, runtimes = _ours(folder, files, chosen)
        peers = _others(files, chosen)
    echo = floors.echo_us()
    figures = []
    for cell in chosen:
        target = cell.target or runtimes[cell][ALONE] / 0.9
        figures += [
            Figure(cell.what, found[cell], "us", target, us, beside)
            for beside, us in runtimes[cell].items()
        ]
        if cell.way == V1 and cell.clients == CALLERS:
            figures.append(
                Figure(cell.what, found[cell], "us", target, echo, "echo on the same event loop")
            )
        for peer, costs in peers.items():
            if cell in costs:
                figures.append(Figure(cell.what, found[cell], "us", target, costs[cell], peer))
    return figures


def _ours(
    folder: Path, files: dict[str, Path], cells: list[Cell]
) -> tuple[dict[Cell, float], dict[Cell, dict[str, float]]]:
    """What the server takes, and what the runtime alone does, by turns."""
    costs: dict[Cell, float] = {}
    runtimes: dict[Cell, dict[str, float]] = {}
    with ours(folder, list(files)) as running:
        for cell in cells:
            alone = _alone(files[cell.model], cell)
            query = _query(cell, OURS, cell.way)
            costs[cell] = least_cost(running, query, files, cell, partial(alone.measure, SECONDS))
            runtimes[cell] = alone.us
    return costs, runtimes


def _alone(file: Path, cell: Cell) -> floors.Alone:
    """The runtime for a request of the cell, by how it is called."""
    alone = floors.Alone(file)
    alone.add(ALONE, count=cell.count)
    if SHAPES[cell.model] == IMAGE:  # the input of others is small
        alone.add(
            f"onnxruntime, called with {CALLERS} images by turns", count=cell.count, inputs=CALLERS
        )
    if cell.model == "mlp":  # a line costs nothing, an image the same alone
        alone.add(
            f"onnxruntime, called for {CALLERS} at once", count=cell.count * CALLERS, shared=CALLERS
        )
    return alone


def _others(files: dict[str, Path], cells: list[Cell]) -> dict[str, dict[Cell, float]]:
    found: dict[str, dict[Cell, float]] = {}
    only = os.environ.get("SERVING_PEERS")
    for peer, kind in OTHERS.items():
        if only is not None and peer not in only.split(","):
            continue
        for model, file in files.items():
            mine = [cell for cell in cells if cell.model == model and cell.beside in kind.ways]
            if not mine:
                continue
            with passed_over(f"{kind.name}, {model}"), theirs(peer, file) as running:
                for cell in mine:
                    with passed_over(f"{kind.name}, {cell.what}"):
                        cost = least_cost(running, _query(cell, kind, cell.beside), files, cell)
                        found.setdefault(version(peer), {})[cell] = cost
    return found


@contextlib.contextmanager
def passed_over(what: str) -> Iterator[None]:
    """Who cannot be had or answers wrongly costs the others nothing, and it is said."""
    try:
        yield
    except (Absent, SystemExit, OSError) as error:
        print(f"  without {what}: {error}", flush=True)
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "grpc":
            raise
        print(f"  without {what}: {str(error)[:300]}", flush=True)


def _query(cell: Cell, kind: Kind, way: str) -> Question:
    return question(way, cell.model, rows(cell.model, cell.count), kind.path if way == V1 else "")


def least_cost(
    running: Running,
    query: Question,
    files: dict[str, Path],
    cell: Cell,
    between: Callable[[], None] | None = None,
) -> float:
    """Microseconds of the server for a request, after its answer was compared with the runtime's.

    ``between`` is called after each round.
    """
    port = running.grpc if query.grpc else running.http
    answers_well(running, query, files[cell.model], cell.model, cell.count)
    asks = press_own if cell.own else partial(press, clients=cell.clients)
    rate = asks(port, query, 4 * cell.clients * cell.streams, streams=cell.streams).rate
    count = max(cell.clients * cell.streams, int(rate * SECONDS))
    costs = []
    for _ in range(ROUNDS):
        before = running.cpu_s()
        asks(port, query, count, streams=cell.streams)
        costs.append((running.cpu_s() - before) / count * 1e6)
        if between is not None:
            between()
    print(f"  {cell.what}: {min(costs):.1f} us", flush=True)
    return min(costs)


def answers_well(running: Running, query: Question, file: Path, model: str, count: int) -> None:
    """Wait until a server answers, and compare.

    Raises:
        SystemExit: where it answers otherwise than the runtime.
    """
    expected = runtime(file).run(None, {"x": rows(model, count)})[0].ravel()
    until = time.monotonic() + 60
    while True:
        try:
            got = query.read(query.ask(running.grpc if query.grpc else running.http))
            break
        except Exception:
            if time.monotonic() > until:
                raise
            time.sleep(0.3)
    if got.shape != expected.shape or not np.allclose(got, expected, rtol=1e-4, atol=1e-5):
        raise SystemExit(f"a wrong answer: {got[:5]} for {expected[:5]}")


if __name__ == "__main__":
    for figure in run():
        print(figure)
