"""A candidate beside what is served, through everything: a real server, its gateway, real
replicas, callers.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import urllib.request
from collections import Counter
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.errors import Conflict, InvalidRequest
from support.calling import calling, over_grpc, token_of
from support.lost_answers import LostAnswers
from support.server import RealServer, eventually, serving
from support.services import ServiceApi, deployed
from support.serving import PREDICT, predict_request, save_linear

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("canary")]

FIRST = 18_750
MODEL = {"model_name": "linear", "model_version": "v1", "model_uri": "fds://cloudml/linear"}
LIMIT_S = 90.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with serving(
        tmp_path_factory.mktemp("server"),
        CLOUDML_GATEWAY_PORTS=f"{FIRST}-{FIRST + 9}",
        CLOUDML_GATEWAY_TARGET_IN_FLIGHT=0.02,
        CLOUDML_GATEWAY_SCALE_DOWN_S=1,
    ) as up:
        storage = up.client().storage
        for name, intercept in (("linear", 10.0), ("better", 5.0)):
            model = save_linear(up.folder / name, intercept=intercept)
            storage.upload(model / "model.onnx", f"fds://cloudml/{name}/1/model.onnx")
        (up.folder / "junk").write_text("junk")
        storage.upload(up.folder / "junk", "fds://cloudml/junk/1/model.onnx")
        yield up


@pytest.fixture
def ask(server: RealServer) -> ServiceApi:
    return ServiceApi(server)


@pytest.fixture(scope="module")
def address(server: RealServer) -> str:
    return deployed(server, MODEL)


class Caller:
    """Asks over HTTP, one connection for all; what came is told by release and by what was
    answered.
    """

    def __init__(self, server: RealServer, address: str) -> None:
        self.address = address
        self.token = token_of(server.credentials)

    def __call__(
        self, times: int = 1, release: str | None = None
    ) -> Counter[tuple[str | None, Any]]:
        headers = {"Authorization": f"Bearer {self.token}"} | (
            {} if release is None else {"cloudml-release": release}
        )
        found: Counter[tuple[str | None, Any]] = Counter()
        with contextlib.closing(http.client.HTTPConnection(self.address, timeout=60)) as connection:
            for _ in range(times):
                connection.request(
                    "POST", "/v1/models/linear:predict", json.dumps({"instances": [1.0]}), headers
                )
                answer = connection.getresponse()
                document = json.load(answer)
                prediction = document["predictions"][0] if answer.status == 200 else answer.status
                found[answer.headers["cloudml-release"], prediction] += 1
        return found


@pytest.fixture
def call(server: RealServer, address: str) -> Caller:
    return Caller(server, address)


def candidate(phase: str) -> Any:
    """Whether a service has a candidate that stands like this."""
    return lambda one: one["candidate"] is not None and one["candidate"]["phase"] == phase


def test_nothing_is_promoted_or_rolled_back_that_is_not_there(
    ask: ServiceApi, address: str
) -> None:
    for what in ("promote", "rollback"):
        with pytest.raises(Conflict, match="there is no"):
            ask("POST", f"/linear/v1/{what}")
    for share in (-1, 101, "half"):
        with pytest.raises(InvalidRequest, match=r"canary is .* from 0 to 100"):
            ask("PATCH", "/linear/v1", {"model_uri": "fds://cloudml/better", "canary": share})
    with pytest.raises(InvalidRequest, match="nothing is to be tried"):
        ask("PATCH", "/linear/v1", {"canary": 10, "replicas": 3})


def test_a_candidate_that_does_not_answer_takes_no_call_and_says_why(
    server: RealServer, ask: ServiceApi, call: Caller
) -> None:
    ask("PATCH", "/linear/v1", {"model_uri": "fds://cloudml/junk", "canary": 50})
    service = ask.until("/linear/v1", lambda one: one["candidate"]["message"])
    assert (service["phase"], service["ready"]) == ("Running", 1)
    assert "INVALID_PROTOBUF" in service["candidate"]["message"]
    assert call(10) == {("1", 12.0): 10}
    refused = server.cli("models", "promote", "linear")
    assert (
        refused.code,
        "release 2, the candidate of linear/v1, does not answer" in refused.err,
    ) == (1, True)
    assert "INVALID_PROTOBUF" in server.cli("models", "describe", "linear").good().out
    words = ("update", "linear", "-u", "fds://cloudml/nothing", "--canary", "50", "--watch")
    failed = server.cli("models", *words, timeout_s=LIMIT_S)
    assert (failed.code, "fds://cloudml/nothing has no model" in failed.err) == (3, True)
    assert call(10) == {("1", 12.0): 10}


def test_of_all_calls_exactly_the_share_whoever_dies(
    server: RealServer, ask: ServiceApi, call: Caller
) -> None:
    words = (
        "update",
        "linear",
        "-v",
        "v1",
        "-u",
        "fds://cloudml/better",
        "--canary",
        "25",
        "--watch",
    )
    changed = server.cli("models", *words, timeout_s=LIMIT_S).good()
    assert "candidate: release 4, 25 % of calls · Running · 1 of 1 replicas answer" in changed.err
    split = {("1", 12.0): 30, ("4", 7.0): 10}
    assert call(40) == split
    assert call(5, "candidate") == call(5, "4") == {("4", 7.0): 5}
    assert call(5, "stable") == {("1", 12.0): 5}
    assert call(1, "2") == {(None, 400): 1}
    with grpc.insecure_channel(call.address) as channel:
        predict = channel.unary_unary(
            PREDICT, request_serializer=lambda each: each.SerializeToString()
        )
        metadata = (("authorization", f"Bearer {call.token}"), ("cloudml-release", "candidate"))
        _, call_made = predict.with_call(
            predict_request(x=[1.0, 2.0]), metadata=metadata, timeout=60
        )
        assert dict(call_made.initial_metadata())["cloudml-release"] == "4"
        assert over_grpc(channel, call.token) in ([12.0, 14.0], [7.0, 9.0])
    server.kill()
    assert call(40) == split, "the gateway goes on"
    server.start()
    os.kill(int((server.data / "gateway" / "gateway.lock").read_text()), signal.SIGKILL)

    def again() -> bool:
        with contextlib.suppress(OSError):
            return call(40) == split
        return False

    eventually(again, "another gateway deals them out alike")
    assert ask("GET", "/linear/v1")["candidate"]["share"] == 25


def test_each_release_is_counted(server: RealServer, ask: ServiceApi, call: Caller) -> None:
    call(8)

    def release_figures() -> Any:
        stable, tried = ask("GET", "/linear/v1/metrics")["releases"]
        return (stable, tried) if tried["requests"] else None

    stable, tried = eventually(release_figures, "what the gateway counted")
    assert (stable["release"], stable["share"], tried["release"], tried["share"]) == (1, 75, 4, 25)
    assert (tried["candidate"], tried["errors"], tried["seconds"] > 0) == (True, 0, True)
    table = server.cli("models", "metrics", "linear").good().out
    assert "candidate  25 %   1 of 1" in table
    with urllib.request.urlopen(f"{server.endpoint}/metrics") as scraped:
        assert b'cloudml_gateway_side_calls_total{side="candidate"}' in scraped.read()
    document = server.cli("models", "describe", "linear", "-o", "json").good().json()
    assert document["candidate_lineage"]["digest"] not in ("", document["lineage"]["digest"])


def test_no_call_fails_while_it_is_promoted_and_taken_back(
    server: RealServer, ask: ServiceApi, call: Caller
) -> None:
    with calling(call.address, call.token) as load:
        promoted = server.cli("models", "promote", "linear", "--watch", timeout_s=LIMIT_S).good()
        assert promoted.out == "linear v1 serves release 4 (Running)\n"
        assert call(6) == {("4", 7.0): 6}
        assert server.client().promote_model_service("linear", "v1", release=4).release == 4, (
            "sent again"
        )
        ask("PATCH", "/linear/v1", {"access": "open"})
        refused = server.cli("models", "rollback", "linear", "v1", "--to", "3")
        assert (refused.code, "release 3 is not kept" in refused.err) == (1, True), refused.err
        rollback = ("models", "rollback", "linear", "v1", "--to", "1", "-W")
        server.cli(*rollback, timeout_s=LIMIT_S).good()
        assert call(6) == {("1", 12.0): 6}
        service = ask("GET", "/linear/v1")
        assert (service["spec"]["access"], service["release"], service["earlier"]) == (
            "open",
            1,
            [],
        )
        ask("PATCH", "/linear/v1", {"model_uri": "fds://cloudml/better", "canary": 100})
        ask.until("/linear/v1", candidate("Running"))
        eventually(lambda: call(6) == {("5", 7.0): 6}, "all calls")
        (server.user_home / "data.json").write_text('{"x": [1.0]}')
        words = ("predict", "linear", "v1", "-d", "./data.json", "--release", "stable")
        for more in ((), ("--http",)):
            assert server.cli("models", *words, *more).good().json() == {"y": [12.0]}
        handle = server.client().get_model_service("linear", "v1")
        handle.rollback()
        eventually(lambda: call(6) == {("1", 12.0): 6}, "none")
    assert not load.failed, (load.failed[:3], len(load.failed), load.answers)
    assert handle.wait(LIMIT_S).candidate is None
    reasons = [event.reason for event in handle.events()]
    assert [each for each in reasons if each in ("CanaryStarted", "Promoted", "RolledBack")] == [
        "CanaryStarted",
        "CanaryStarted",
        "CanaryStarted",
        "Promoted",
        "RolledBack",
        "CanaryStarted",
        "RolledBack",
    ]


def test_a_promotion_and_a_rollback_whose_answers_are_lost_happen_once(
    server: RealServer, ask: ServiceApi
) -> None:
    ask("PATCH", "/linear/v1", {"model_uri": "fds://cloudml/better", "canary": 10})
    service = ask.until("/linear/v1", candidate("Running"))
    way, key = LostAnswers(server.port), server.credentials
    with (
        contextlib.closing(way),
        CloudMlClient(key["access_key"], key["secret_key"], way.endpoint) as client,
    ):
        way.lose("POST", lambda: None)
        assert (
            client.promote_model_service("linear", "v1").release == service["candidate"]["release"]
        )
        eventually(lambda: ask("GET", "/linear/v1")["phase"] == "Running", "rolled out")
        way.lose("POST", lambda: None)
        assert client.rollback_model_service("linear", "v1").release == 1
        assert way.lost == 2
        with pytest.raises(Conflict, match="there is no candidate to promote"):
            client.promote_model_service("linear", "v1")
        with pytest.raises(Conflict, match="there is nothing to go back to"):
            client.rollback_model_service("linear", "v1")


def test_both_scale_while_one_is_tried_and_a_promotion_loses_nothing(
    server: RealServer, ask: ServiceApi
) -> None:
    address = deployed(server, MODEL | {"model_version": "v2", "max_replicas": 3})
    ask("PATCH", "/linear/v2", {"model_uri": "fds://cloudml/better", "canary": 50})
    ask.until("/linear/v2", candidate("Running"))

    def counted() -> list[int]:
        return [each["requests"] for each in ask("GET", "/linear/v2/metrics")["releases"]]

    def halves() -> bool:
        before = counted()
        now = eventually(
            lambda: sum(found := counted()) > sum(before) + 200 and found, "more calls"
        )
        stable, tried = (after - then for after, then in zip(now, before, strict=True))
        return abs(stable - tried) <= 2

    def both(one: Any) -> bool:
        return (one["ready"], one["wanted"]) == (3, 3) and one["candidate"]["ready"] == one[
            "candidate"
        ]["wanted"] == 2

    with calling(address, token_of(server.credentials), pause_s=0.0) as load:
        ask.until("/linear/v2", both)
        eventually(halves, "each has its half of the next calls")
        server.cli("models", "promote", "linear", "v2", "--watch", timeout_s=LIMIT_S).good()
        promoted = ask.until("/linear/v2", lambda one: one["ready"] == one["wanted"] == 3)
        assert {each["release"] for each in promoted["replicas"]} == {promoted["release"]} == {2}
    assert load.failed == []
    ask("DELETE", "/linear/v2")
