"""Parameters of the Open Inference Protocol mean the same over gRPC and HTTP."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import pytest

from cloud_ml.serving.protos import message
from fuzz.model_world import INFER, Transport, World

ROW = np.array([[1.0, 2.0]], np.float32)
MICROSECONDS = 1_000_000


def over_grpc(world: World, parameters: dict[str, Any]) -> tuple[int, str]:
    """The status of gRPC, and the message of an error."""
    request = message("inference.ModelInferRequest")(
        model_name="m", raw_input_contents=[ROW.tobytes()]
    )
    request.inputs.add(name="x", datatype="FP32", shape=ROW.shape)
    fields = {str: "string_param", bool: "bool_param", float: "double_param", int: "int64_param"}
    for name, value in parameters.items():
        setattr(
            request.parameters[name],
            "uint64_param" if value == 2**63 else fields[type(value)],
            value,
        )
    status, answer = world.call(INFER, request.SerializeToString(deterministic=True))
    return status, answer.decode("latin-1") if status else ""


def over_http(world: World, parameters: dict[str, Any]) -> tuple[int, str]:
    """The same, with the status of gRPC that stands for that of HTTP."""
    given = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": ROW.ravel().tolist()}
    body = json.dumps({"inputs": [given], "parameters": parameters}).encode()
    connection, transport = world.http1()
    connection.data_received(
        b"POST /v2/models/m/infer HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%b"
        % (len(body), body)
    )
    world.loop.settle()
    assert isinstance(transport, Transport)
    head, _, answer = transport.written.partition(b"\r\n\r\n")
    status = {200: 0, 400: 3, 501: 12, 504: 4}[int(head.split()[1])]
    return status, json.loads(answer)["error"] if status else ""


@pytest.fixture(params=[over_grpc, over_http])
def ask(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.parametrize(("timeout_s", "status"), [(None, 0), (0, 0), (1, 4), (3_600, 0)])
def test_a_request_is_not_run_after_its_timeout(
    ask: Any, timeout_s: int | None, status: int
) -> None:
    """Whether it is read in full, or recognised by its bytes as the second one is."""
    world = World()
    waited, settle = [0.0], world.loop.settle
    world.loop.time = world.iteration.time = lambda: time.monotonic() + waited[0]

    def settle_late() -> None:
        """The request waits for its turn so long."""
        waited[0] = 3.0
        settle()
        waited[0] = 0.0

    world.loop.settle = settle_late
    parameters = {} if timeout_s is None else {"timeout": timeout_s * MICROSECONDS}
    for _ in range(3):
        assert ask(world, parameters)[0] == status


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        (
            {"timeout": -1},
            "'timeout' of the request is '-1'; a timeout is a whole number of microseconds",
        ),
        ({"timeout": "5"}, "'timeout' of the request is '5'"),
        ({"timeout": 0.5}, "'timeout' of the request is '0.5'"),
        ({"timeout": True}, "'timeout' of the request is 'True'"),
        ({"timeout": 2**63}, "'timeout' of the request is '9223372036854775808'"),
        (
            {"priority": "high"},
            "'priority' of the request is 'high'; a priority is a whole number, 0 or more",
        ),
        ({"priority": -1}, "'priority' of the request is '-1'"),
        ({"signature_name": 3}, "'signature_name' of the request is 3; it is a string"),
    ],
)
def test_what_is_none_is_refused(ask: Any, parameters: dict[str, Any], words: str) -> None:
    status, answer = ask(World(), parameters)
    assert status == 3
    assert words in answer


@pytest.mark.parametrize(
    "parameters", [{"priority": 0}, {"priority": 7}, {"signature_name": "serving_default"}]
)
def test_what_has_no_effect_is_taken(ask: Any, parameters: dict[str, Any]) -> None:
    assert ask(World(), parameters) == (0, "")


@pytest.mark.parametrize(
    "name", ["sequence_id", "sequence_start", "shared_memory_region", "classification"]
)
def test_what_is_not_offered_is_refused(ask: Any, name: str) -> None:
    status, answer = ask(World(), {name: 1})
    assert status == 12
    assert f"parameter {name!r} of the request is not offered" in answer
