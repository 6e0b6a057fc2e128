"""Calls through the gateway: a real server, real replicas, clients by grpcio and http.client."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import queue
import re
import signal
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from cloud_ml.client import CloudMlClient
from cloud_ml.errors import Forbidden
from cloud_ml.serving.protos import message
from integration.serving.test_services import Stream
from support.calling import Load, calling, over_grpc, over_http, token_of
from support.http2 import Http2Client
from support.server import RealServer, eventually, serving
from support.services import ServiceApi, deployed, running
from support.serving import predict, predict_request, save_linear

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("gateway")]

FIRST = 18_600
V1 = {"model_name": "linear", "model_version": "v1", "model_uri": "fds://cloudml/linear"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with serving(
        tmp_path_factory.mktemp("server"),
        CLOUDML_GATEWAY_PORTS=f"{FIRST}-{FIRST + 9}",
        CLOUDML_GATEWAY_TARGET_IN_FLIGHT=0.2,
    ) as up:
        save_linear(up.folder / "linear")
        up.client().storage.upload(
            up.folder / "linear" / "model.onnx", "fds://cloudml/linear/1/model.onnx"
        )
        yield up


@pytest.fixture
def ask(server: RealServer) -> ServiceApi:
    return ServiceApi(server)


@pytest.fixture(scope="module")
def address(server: RealServer) -> str:
    return deployed(server, V1)


def status_of(address: str, token: str | None) -> tuple[str, int]:
    """How both protocols answer."""
    with contextlib.closing(http.client.HTTPConnection(address, timeout=60)) as connection:
        status, document = over_http(connection, token)
        assert ("error" in document) == (status != 200)
    with grpc.insecure_channel(address) as channel:
        try:
            over_grpc(channel, token)
        except grpc.RpcError as error:
            return error.code().name, status
        return "OK", status


def runs(pid: int) -> bool:
    """Whether a process is there that has not ended."""
    try:
        return (
            Path(f"/proc/{pid}/cmdline").read_bytes() != b""
        )  # empty where only its end is left to be heard of
    except OSError:
        return False


def gateway_pid(server: RealServer) -> int:
    return int((server.data / "gateway" / "gateway.lock").read_text())


def test_who_may_call(server: RealServer, ask: ServiceApi, address: str) -> None:
    assert address.startswith("127.0.0.1:")
    keys = server.credentials
    assert status_of(address, token_of(keys)) == ("OK", 200)
    assert status_of(address, None) == ("UNAUTHENTICATED", 401)
    assert status_of(address, "cmt1.x.1.y") == ("UNAUTHENTICATED", 401)
    assert status_of(address, token_of(keys, -1)) == ("UNAUTHENTICATED", 401)
    assert status_of(address, token_of(keys | {"secret_key": "another"})) == (
        "UNAUTHENTICATED",
        401,
    )
    assert status_of(address, token_of(keys, 10 * 366 * 86_400)) == ("UNAUTHENTICATED", 401), (
        "too far ahead"
    )
    make = server.client().model_token
    assert status_of(address, make(60, service="linear/v1")) == ("OK", 200)
    assert status_of(address, make(60, service="linear/v2")) == ("PERMISSION_DENIED", 403), (
        "for another service"
    )

    admin = server.client().admin
    admin.create_org("other")
    admin.create_user("olga", org="other")
    foreign = admin.create_key("olga", org="other")
    theirs = token_of({"access_key": foreign.key.access_key, "secret_key": foreign.secret_key})
    for enabled, status in (
        (False, ("UNAUTHENTICATED", 401)),
        (True, ("PERMISSION_DENIED", 403)),
    ) * 3:
        admin.change_key(foreign.key.access_key, enabled=enabled)
        assert status_of(address, theirs) == status, (
            f"the key is in force as soon as it is enabled={enabled}"
        )
    admin.delete_user("olga", org="other")
    assert status_of(address, theirs) == ("UNAUTHENTICATED", 401), "its user is gone"

    ask("PATCH", "/linear/v1", {"access": "open"})
    eventually(lambda: status_of(address, None) == ("OK", 200), "open to all")
    ask("PATCH", "/linear/v1", {"access": "key"})
    eventually(lambda: status_of(address, None) == ("UNAUTHENTICATED", 401), "closed again")


def test_a_viewer_calls_models_and_narrows_the_right_to_one_service(
    server: RealServer, address: str
) -> None:
    """As docs/security.md says of viewers: calls are no changes. All else stays refused."""
    admin = server.client().admin
    admin.create_user("vera", org="default", role="viewer")
    key = admin.create_key("vera", org="default")
    keys = {"access_key": key.key.access_key, "secret_key": key.secret_key}
    assert status_of(address, token_of(keys)) == ("OK", 200)
    with CloudMlClient(**keys, endpoint=server.endpoint) as vera:
        own, other = (vera.model_token(60, service=name) for name in ("linear/v1", "linear/v2"))
        assert status_of(address, own) == ("OK", 200)
        assert status_of(address, other) == ("PERMISSION_DENIED", 403)
        with pytest.raises(Forbidden):
            vera.tokens.create(["models:predict:linear"], expires_in_s=60)
        with pytest.raises(Forbidden):
            vera.delete_model_service("linear", "v1")
    admin.delete_user("vera", org="default")
    assert status_of(address, own) == ("UNAUTHENTICATED", 401), "a token ends with its user"


def test_access_tokens_call_and_list_what_their_scopes_name(
    server: RealServer, address: str
) -> None:
    tokens = server.client().tokens
    made = tokens.create(["models:predict:linear"], expires_in_s=600)
    narrow = tokens.create(["models:metadata:linear"], expires_in_s=600)
    other = tokens.create(["models:predict:other", "jobs:read"], expires_in_s=600)
    assert status_of(address, made.token) == ("OK", 200), "a token works as soon as it is created"
    assert status_of(address, narrow.token) == ("PERMISSION_DENIED", 403)
    assert status_of(address, other.token) == ("PERMISSION_DENIED", 403)
    for token, names in ((made.token, ["linear"]), (narrow.token, ["linear"]), (other.token, [])):
        headers = {"Authorization": f"Bearer {token}"}
        request = urllib.request.Request(f"http://{address}/v1/models", headers=headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert [one["name"] for one in json.load(answer)["models"]] == names
    tokens.revoke(made.info.id)
    assert status_of(address, made.token) == ("UNAUTHENTICATED", 401), (
        "a revoked token is refused at once"
    )


def test_what_is_long_comes_whole_both_ways(server: RealServer, address: str) -> None:
    numbers = np.arange(1_000_000, dtype=np.float32)
    bearer = (("authorization", f"Bearer {token_of(server.credentials)}"),)
    with grpc.insecure_channel(
        address, options=[("grpc.max_receive_message_length", -1)]
    ) as channel:
        for size in (300_000, 2, len(numbers), 100_000):
            found = predict(
                channel, predict_request(x=numbers[:size]), metadata=bearer, timeout=30
            )["y"]
            np.testing.assert_array_equal(found, numbers[:size] * 2 + 10)


def test_tools_learn_of_methods_through_it(server: RealServer, address: str) -> None:
    info, request_name = (
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "grpc.reflection.v1.ServerReflectionRequest",
    )
    bearer = (("authorization", f"Bearer {token_of(server.credentials)}"),)
    words: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with grpc.insecure_channel(address) as channel:
        stub = channel.stream_stream(
            info,
            request_serializer=lambda each: each.SerializeToString(),
            response_deserializer=message("grpc.reflection.v1.ServerReflectionResponse").FromString,
        )
        answers = stub(iter(words.get, None), metadata=bearer, timeout=60)
        words.put(message(request_name)(list_services=""))
        listed = next(
            answers
        ).list_services_response.service  # answered before the caller has said everything
        assert "tensorflow.serving.PredictionService" in {each.name for each in listed}
        words.put(
            message(request_name)(file_containing_symbol="tensorflow.serving.PredictionService")
        )
        assert next(answers).file_descriptor_response.file_descriptor_proto
        words.put(None)
        assert list(answers) == []
        for _ in range(2):  # the connection bears it
            words.put(message(request_name)(list_services=""))
            with pytest.raises(grpc.RpcError, match="UNAUTHENTICATED"):
                next(stub(iter(words.get, None), timeout=60))  # although it has not said everything
            words.put(None)


def test_triton_infers_on_a_stream_through_it(server: RealServer, address: str) -> None:
    port = int(address.rpartition(":")[2])
    stream = Stream(port, {"authorization": f"Bearer {token_of(server.credentials)}"})
    large = np.arange(1_000_000, dtype=np.float32)
    with contextlib.closing(stream):
        for _ in range(3):  # the first before there is a connection to the replica
            stream.ask(large)
        for number in range(100):
            stream.ask([number], id_=str(number))
        for _ in range(3):
            np.testing.assert_array_equal(stream.next()[0].as_numpy("y"), large * 2 + 10)
        for number in range(100):
            answer, error = stream.next()
            assert (error, answer.get_response().id) == (None, str(number))
            assert answer.as_numpy("y").tolist() == [number * 2 + 10]
    with contextlib.closing(Stream(port)) as stranger:
        with contextlib.suppress(
            InferenceServerException
        ):  # it is refused by its head, perhaps before it asks
            stranger.ask([1.0])
        assert "UNAUTHENTICATED" in str(stranger.next()[1])


def test_rest_goes_over_http_2_too(server: RealServer, address: str) -> None:
    host, _, port = address.rpartition(":")
    bearer = {"authorization": f"Bearer {token_of(server.credentials)}"}
    predict_path = "/v1/models/linear:predict"
    with Http2Client(host, int(port)) as client:
        refused = client.ask("POST", predict_path, {"instances": [1.0]})
        assert (refused.status, "error" in refused.document) == (401, True)
        assert refused.fields["www-authenticate"].startswith("Bearer")
        numbers = [
            client.send("POST", predict_path, {"instances": [float(each)]}, **bearer)
            for each in range(50)
        ]
        for each, number in enumerate(numbers):
            answer = client.wait(number)
            assert answer.document == {"predictions": [each * 2.0 + 10]}
        assert answer.fields["cloudml-release"]
        assert client.ask("GET", "/v2/health/ready", **bearer).document == {"ready": True}
        many = [float(each) for each in range(200_000)]
        large = client.ask("POST", predict_path, {"instances": many}, **bearer)
        assert large.document == {"predictions": [each * 2 + 10 for each in many]}
        assert client.ask("POST", predict_path, bytes(65 << 20), **bearer).status == 413


def test_nothing_fails_while_everything_changes(
    server: RealServer, ask: ServiceApi, address: str
) -> None:
    ask("PATCH", "/linear/v1", {"replicas": 2})
    first = ask.until("/linear/v1", running(2))["replicas"]
    with calling(address, token_of(server.credentials)) as load:
        _go_on(load, "calls are answered")

        ask("PATCH", "/linear/v1", {"environment": {"COLOUR": "blue"}})
        rolled = ask.until(
            "/linear/v1",
            lambda one: running(2)(one) and first[0]["uid"] not in str(one["replicas"]),
        )
        _go_on(load, "after the change")

        (root, *_) = server.processes_of(rolled["replicas"][0]["uid"])
        os.kill(root, signal.SIGKILL)
        _go_on(load, "without one of the replicas")

        server.kill()
        _go_on(load, "without a server")
        server.start()
        ask.until("/linear/v1", running(2))
        _go_on(load, "with a new server")
    assert not load.failed, (load.failed[:3], len(load.failed), load.total)
    assert min(load.answers.values()) > 100, load.answers


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give up")
def test_a_gateway_of_root_has_no_rights(server: RealServer, address: str) -> None:
    process_status = Path(f"/proc/{gateway_pid(server)}/status").read_text()
    status = {
        name: value.split()
        for name, _, value in (line.partition(":") for line in process_status.splitlines())
    }
    assert status["Uid"] == status["Gid"] == ["1600000"] * 4
    assert status["Groups"] == []
    for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(status[kind][0], 16) == 0, kind
    assert status["NoNewPrivs"] == ["1"]
    assert not _fresh(address, token_of(server.credentials)), "and it answers"


def test_another_gateway_takes_over(server: RealServer, ask: ServiceApi, address: str) -> None:
    before, token = gateway_pid(server), token_of(server.credentials)
    server.terminate()
    server._settings["CLOUDML_GATEWAY_WAITING"] = "999"
    refused: list[str] = []
    with calling(address, token, callers=1) as load:  # over one connection, which is told to go
        server.start()
        while gateway_pid(server) == before:
            refused += _fresh(address, token)
        _go_on(load, "with another gateway", "grpc")
    assert not refused
    assert not load.failed
    eventually(
        lambda: not Path(f"/proc/{before}").exists(), "the old one ends when it has nothing to do"
    )


@pytest.mark.parametrize("whom", ["it", "its opener"])
def test_a_gateway_that_was_killed_comes_again(
    server: RealServer, ask: ServiceApi, address: str, whom: str
) -> None:
    before = gateway_pid(server)
    openers = [
        int(pid) for pid in Path(f"/proc/{before}/task/{before}/children").read_text().split()
    ]
    if whom != "it" and not openers:
        pytest.skip("only a gateway of root has one")
    os.kill(before if whom == "it" else openers[0], signal.SIGKILL)
    eventually(lambda: gateway_pid(server) != before, "another is there")
    eventually(
        lambda: not _fresh(address, token_of(server.credentials)), "calls are answered again"
    )
    eventually(
        lambda: not [pid for pid in (before, *openers) if runs(pid)], "nothing of it is left"
    )


def test_replicas_come_and_go_with_the_calls(
    server: RealServer, ask: ServiceApi, address: str
) -> None:
    ask("PATCH", "/linear/v1", {"replicas": 1, "max_replicas": 2})
    ask.until("/linear/v1", running(1))
    with calling(address, token_of(server.credentials), pause_s=0.0):
        ask.until("/linear/v1", running(2))
    events = ask("GET", "/linear/v1/events")["items"]
    assert "2 replicas for what is asked of it" in {event["message"] for event in events}
    with urllib.request.urlopen(f"{server.endpoint}/metrics") as scraped:
        assert re.search(rb"^cloudml_gateway_calls_total [1-9]", scraped.read(), re.MULTILINE)
    ask("PATCH", "/linear/v1", {"idle_scale_down": "1s"})
    ask.until("/linear/v1", running(1))


def test_ports_are_given_once_and_freed(server: RealServer, ask: ServiceApi, address: str) -> None:
    taken = {int(address.rpartition(":")[2])}
    with socket.socket() as squatter:
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        for port in range(FIRST, FIRST + 9):
            with contextlib.suppress(OSError):
                squatter.bind(("127.0.0.1", port))
                break
        squatter.listen()
        made = ask("POST", "", V1 | {"model_version": "v2", "save_mode": True})
        other = ask.until("/linear/v2", lambda one: one["address"])
        assert int(other["address"].rpartition(":")[2]) not in taken | {squatter.getsockname()[1]}
    assert made["phase"] == "Saved"
    assert status_of(other["address"], token_of(server.credentials)) == ("UNAVAILABLE", 503), (
        "nothing runs there"
    )
    ask("DELETE", "/linear/v2")

    def gone() -> bool:
        try:
            socket.create_connection(
                ("127.0.0.1", int(other["address"].rpartition(":")[2]))
            ).close()
        except ConnectionRefusedError:
            return True
        except ConnectionResetError:
            pass  # the socket was closed while this connection waited to be accepted
        return False

    eventually(gone, "nobody listens any more")


def _go_on(load: Load, what: str, *kinds: str) -> None:
    """Wait for more answers of each kind, or for a failure."""
    before = dict(load.answers)

    def more() -> Any:
        return load.failed or all(
            load.answers[kind] > before[kind] + 20 for kind in kinds or before
        )

    eventually(more, what)


def _fresh(address: str, token: str) -> list[str]:
    """A call over a connection of its own: nothing, or what was wrong."""
    try:
        with contextlib.closing(http.client.HTTPConnection(address, timeout=60)) as connection:
            status, document = over_http(connection, token)
    except OSError as error:
        return [repr(error)]
    return [] if status == 200 else [f"{status} {document}"]
