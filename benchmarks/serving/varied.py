"""Processor time of requests of which no two are alike: values, order, encoding and shapes change
from one to the next.

Models of several inputs and outputs, each alone, and five models by turns: what a server remembers
of one request must serve the others. Every request is asked for once before, and its answer
compared with the runtime's. The floor beside it is the runtime, called directly in the same run.
Run: ``python benchmarks/run.py serving.varied``.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from harness import Figure, temporary_folder

from cloud_ml.serving.codecs.tensor_proto import decode
from cloud_ml.serving.protos import message
from serving.cost import ALONE, CALLERS, ROUNDS, SECONDS
from serving.models import Array, runtime
from serving.replay import replay_grpc, replay_http
from serving.servers import Running, ours
from serving.varied_models import ENCODINGS, VARIED, Inputs, by_columns, by_rows, predict, v2

DISTINCT = 640
"""Requests of a cell."""
MIXED = 1.3
"""What a request of a mix may cost, as a multiple of the mean of its parts."""
PREDICT = "/tensorflow.serving.PredictionService/Predict"


@dataclass(frozen=True)
class Cell:
    """Requests to some models, each with one of some numbers of rows; ``way`` is an encoding, or
    a form of JSON.
    """

    what: str
    way: str
    models: tuple[str, ...]
    target: float = 0.0
    rows: tuple[int, ...] = (1,)


MIX = "gRPC, five models by turns, 1 to 4 rows, any encoding"
PARTS = tuple(
    Cell(f"gRPC, {model} alone, 1 to 4 rows, any encoding", "any", (model,), rows=(1, 1, 2, 4))
    for model in VARIED
)
CELLS = (
    Cell("gRPC, the slides' model, tensor_content, any order", "content", ("slides",), 8),
    Cell("gRPC, the slides' model, typed values, any order", "typed", ("slides",), 8),
    Cell("REST v1, the slides' model by rows", "rows", ("slides",), 16),
    Cell("REST v1, the slides' model by columns", "columns", ("slides",), 16),
    Cell("REST v2, linear", "v2", ("linear",), 16),
    Cell("REST v2, the slides' model", "v2", ("slides",), 16),
    *PARTS,
    Cell(MIX, "any", tuple(VARIED), rows=(1, 1, 2, 4)),
)
_JSON: dict[str, Callable[[Inputs, random.Random], bytes]] = {
    "rows": by_rows,
    "columns": by_columns,
    "v2": v2,
}


@dataclass(frozen=True)
class ModelRequest:
    """A request: to which model, as bytes, and what is in it."""

    model: str
    body: bytes
    inputs: Inputs


def run() -> list[Figure]:
    with temporary_folder() as folder:
        files = {name: model.save(folder / name) for name, model in VARIED.items()}
        with ours(folder, list(files)) as running:
            costs = {cell.what: _measure(running, cell, files) for cell in CELLS}
    parts = sum(costs[cell.what][0] for cell in PARTS) / len(PARTS)
    figures = []
    for cell in CELLS:
        cost, floor = costs[cell.what]
        target = cell.target or MIXED * parts
        if cell not in PARTS:
            figures.append(Figure(cell.what, cost, "us", target, floor, ALONE))
    figures.append(
        Figure(MIX, costs[MIX][0], "us", MIXED * parts, parts, "the mean of the five alone")
    )
    return figures


def requests_of(cell: Cell) -> list[ModelRequest]:
    """So many requests, by turns to each model."""
    luck, made = random.Random(cell.what), []
    for number in range(DISTINCT):
        model = cell.models[number % len(cell.models)]
        inputs = VARIED[model].inputs(luck, luck.choice(cell.rows))
        if cell.way in _JSON:
            body = _JSON[cell.way](inputs, luck)
        else:
            encoding = luck.choice(ENCODINGS) if cell.way == "any" else cell.way
            body = predict(model, inputs, encoding, luck)
        made.append(ModelRequest(model, body, inputs))
    return made


def _measure(running: Running, cell: Cell, files: dict[str, Path]) -> tuple[float, float]:
    """The least microseconds of the server for a request, and of the runtime alone, by turns."""
    requests = requests_of(cell)
    sessions = {model: runtime(files[model]) for model in cell.models}
    for each in requests[:100]:
        _check(_ask(running, cell, each), sessions[each.model].run(None, each.inputs), each)
    send = _sender(running, cell, [each.body for each in requests])
    sizes = send()
    begun = time.monotonic()
    send()
    times = max(1, round(SECONDS / (time.monotonic() - begun)))
    cost = floor = float("inf")
    for _ in range(ROUNDS):
        before = running.cpu_s()
        for _ in range(times):
            if cell.way not in _JSON and send() != sizes:
                raise SystemExit(f"{cell.what}: answers of other sizes")
            if cell.way in _JSON:
                send()
        cost = min(cost, (running.cpu_s() - before) / times / len(requests) * 1e6)
        before = time.process_time()
        for each in requests:
            sessions[each.model].run(None, each.inputs)
        floor = min(floor, (time.process_time() - before) / len(requests) * 1e6)
    print(f"  {cell.what}: {cost:.1f} us, the runtime {floor:.1f}", flush=True)
    return cost, floor


def _path(cell: Cell, model: str) -> str:
    if cell.way not in _JSON:
        return PREDICT
    return f"/v2/models/{model}/infer" if cell.way == "v2" else f"/v1/models/{model}:predict"


def _sender(running: Running, cell: Cell, bodies: Sequence[bytes]) -> Callable[[], list[int]]:
    path = _path(cell, cell.models[0])
    if cell.way in _JSON:
        return lambda: replay_http(running.http, path, bodies, CALLERS)
    return lambda: replay_grpc(running.grpc, path, bodies, CALLERS)


def _ask(running: Running, cell: Cell, request: ModelRequest) -> list[Array]:
    """The outputs, by a client that is not the one that measures."""
    from serving.queries import Question

    path = _path(cell, request.model)
    question = Question(
        path, request.body, lambda body: np.frombuffer(body, np.uint8), cell.way not in _JSON
    )
    body = question.ask(running.grpc if question.grpc else running.http)
    if question.grpc:
        outputs = message("tensorflow.serving.PredictResponse").FromString(body[5:]).outputs
        return [decode(name, outputs[name]) for name in sorted(outputs)]
    return _listed(cell, json.loads(body))


def _listed(cell: Cell, document: Any) -> list[Array]:
    if cell.way == "v2":
        outputs = sorted(document["outputs"], key=lambda each: str(each["name"]))
        return [np.asarray(each["data"]).reshape(each["shape"]) for each in outputs]
    if cell.way == "columns":
        return [np.asarray(document["outputs"][name]) for name in sorted(document["outputs"])]
    rows = document["predictions"]
    return [np.asarray([row[name] for row in rows]) for name in sorted(rows[0])]


def _check(got: list[Array], expected: list[Array], request: ModelRequest) -> None:
    """Compare an answer with the runtime's; our models name their outputs in the order of the
    alphabet.
    """
    for one, other in zip(got, expected, strict=True):
        if one.shape != other.shape or not np.allclose(one, other, rtol=1e-4, atol=1e-5):
            raise SystemExit(f"a wrong answer of {request.model}: {one} for {other}")


if __name__ == "__main__":
    for figure in run():
        print(figure)
