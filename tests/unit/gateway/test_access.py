"""Access tokens at the gateway: what a scope opens, and what is listed."""

from __future__ import annotations

import json

import pytest

from cloud_ml.auth import bearer
from cloud_ml.domain.services.routes import CallingKey, Route, access_token_name
from cloud_ml.gateway.access import METADATA, PREDICT, WRITE, Access
from cloud_ml.gateway.fronts import _action_of_method, _action_of_path
from cloud_ml.gateway.model_list import ModelList
from support.replica_sockets import backend

NOW = 1_000_000.0
ENDS = int(NOW) + 60


class Known:
    """An access that knows one token, at a time that is moved."""

    def __init__(self, *scopes: str) -> None:
        self.now = NOW
        self.access = Access(10.0, lambda: self.now)
        self.token, self.text = bearer.new_token()
        key = CallingKey("mine", self.token.digest, ENDS, scopes)
        self.access.learn({access_token_name(self.token.id): key})

    def opens(self, service: str, action: str = PREDICT, org: str = "mine", text: str = "") -> bool:
        return self.access.refusal(text or self.text, org, service, action) is None


@pytest.mark.parametrize(
    ("scope", "opened"),
    [
        ("models:predict", {(name, action) for name in ("linear/v1", "other/v1") for action in (PREDICT, METADATA)}),
        ("models:predict:linear", {("linear/v1", PREDICT), ("linear/v1", METADATA)}),
        ("models:predict:linear/v1", {("linear/v1", PREDICT), ("linear/v1", METADATA)}),
        ("models:predict:linear/v2", set()),
        ("models:metadata:linear", {("linear/v1", METADATA)}),
        ("models:read", {("linear/v1", METADATA), ("other/v1", METADATA)}),
        ("models:write", {(name, action) for name in ("linear/v1", "other/v1") for action in (METADATA, WRITE)}),
    ],
)  # fmt: skip
def test_a_scope_opens_services_and_actions(scope: str, opened: set[tuple[str, str]]) -> None:
    known = Known(scope)
    calls = [
        (name, action)
        for name in ("linear/v1", "other/v1")
        for action in (PREDICT, METADATA, WRITE)
    ]
    assert {each for each in calls if known.opens(*each)} == opened
    assert not any(known.opens(*each, org="theirs") for each in calls)


def test_a_refusal_names_the_scope() -> None:
    known = Known("models:metadata")
    refused = known.access.refusal(known.text, "mine", "linear/v1", PREDICT)
    assert refused is not None
    assert (refused.http, refused.grpc) == (403, 7)
    assert "models:predict:linear/v1" in refused.message


def test_a_refusal_names_a_token_that_looks_up_the_address_and_calls() -> None:
    known = Known("jobs:read", "models:read")
    refused = known.access.refusal(known.text, "mine", "linear/v1", PREDICT)
    assert refused is not None
    assert refused.message.endswith(
        "cloudml token create --scope models:predict:linear/v1,models:read"
    )


def test_a_token_ends_and_no_letter_may_differ() -> None:
    known = Known("models:predict")
    for at in range(len(known.text)):
        letter = "a" if known.text[at] != "a" else "b"
        assert not known.opens("linear/v1", text=known.text[:at] + letter + known.text[at + 1 :])
    assert known.opens("linear/v1"), "also beyond the limit of derived tokens"
    known.now = ENDS
    assert not known.opens("linear/v1")


def test_a_revoked_token_is_forgotten_with_the_next_word_of_the_server() -> None:
    known = Known("models:predict")
    assert known.opens("linear/v1")
    known.access.learn({})
    assert not known.opens("linear/v1")


def test_only_services_that_the_token_opens_are_listed() -> None:
    known = Known("models:predict:linear", "models:metadata:tree")
    routes = [
        Route(1, "mine", "linear/v1", backends=(backend("a"),)),
        Route(2, "mine", "linear/v2"),
        Route(3, "mine", "tree/v1"),
        Route(4, "mine", "secret/v1"),
        Route(5, "theirs", "linear/v1"),
        Route(6, "mine", "open/v1", open=True),
        Route(7, "mine", "linear/v3", wanted=False),
    ]
    listed = ModelList(lambda: routes, known.access, "https://models.example")
    assert listed.refusal("") is not None
    assert listed.refusal("cmt1.AK.1.x") is not None
    assert listed.refusal(known.text) is None
    found = json.loads(listed.body(known.text))["models"]
    assert [(one["name"], one["version"]) for one in found] == [
        ("linear", "v1"), ("linear", "v2"), ("open", "v1"), ("tree", "v1"),
    ]  # fmt: skip
    assert found[0] == {
        "name": "linear", "version": "v1", "state": "AVAILABLE", "url": "https://models.example:1",
        "predict": "https://models.example:1/v1/models/linear:predict",
    }  # fmt: skip
    assert found[1]["state"] == "UNAVAILABLE"


@pytest.mark.parametrize(
    ("method", "path", "action"),
    [
        ("POST", "/v1/models/linear:predict", PREDICT),
        ("POST", "/v1/models/linear/versions/2:classify", PREDICT),
        ("POST", "/v1/models/linear:PREDICT", PREDICT),
        ("POST", "/v2/models/linear/infer", PREDICT),
        ("POST", "/invocations", PREDICT),
        ("GET", "/v1/models/linear/metadata", METADATA),
        ("POST", "/v2/repository/index", METADATA),
        ("POST", "/v2/repository/models/linear/load", WRITE),
        ("POST", "/v2/repository/models/linear/l%6fad", WRITE),
        ("POST", "/v2/repository/models/infer/unload", WRITE),
        ("POST", "/anything", WRITE),
    ],
)
def test_what_a_path_does(method: str, path: str, action: str) -> None:
    assert _action_of_path(method, path) == action


@pytest.mark.parametrize(
    ("method", "action"),
    [
        (b"/tensorflow.serving.PredictionService/Predict", PREDICT),
        (b"/inference.GRPCInferenceService/ModelStreamInfer", PREDICT),
        (b"/tensorflow.serving.PredictionService/GetModelMetadata", METADATA),
        (b"/tensorflow.serving.ModelService/HandleReloadConfigRequest", WRITE),
        (b"/inference.GRPCInferenceService/RepositoryModelUnload", WRITE),
    ],
)
def test_what_a_method_does(method: bytes, action: str) -> None:
    assert _action_of_method(method) == action
