"""Tables whose columns have the names of the training, in whatever order they come."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from cloud_ml.sdk.inference import trained_columns
from cloud_ml.serving.errors import BadRequest
from cloud_ml.serving.loaded import LoadedVersion
from cloud_ml.serving.runtimes.sklearn import SklearnModel, described
from fuzz.model_world import Transport, World

ANSWER = b'{"predictions":[%s]}'
JSON, CSV = b"application/json", b"text/csv"


class Regression:
    """Weighs its three features, which had names in training."""

    n_features_in_ = 3
    feature_names_in_ = np.array(["age", "net income", "n"], object)

    def predict(self, rows: Any) -> Any:
        return rows @ [1.0, 10.0, 100.0]


@pytest.fixture
def world() -> World:
    made = World()
    workshop = made.table.models["m"].versions[1]._workshop
    made.table.put(
        LoadedVersion("m", 1, SklearnModel(Regression(), described(Regression())), workshop)
    )
    return made


def invoke(world: World, body: bytes, kind: bytes = JSON) -> bytes:
    connection, transport = world.http1()
    head = (
        b"POST /invocations HTTP/1.1\r\nHost: h\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
    )
    connection.data_received(head % (kind, len(body)) + body)
    world.loop.settle()
    assert isinstance(transport, Transport)
    return transport.written.partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (
            b'{"dataframe_split": {"columns": ["age", "net income", "n"], "data": [[1, 2, 3]]}}',
            JSON,
        ),
        (
            b'{"dataframe_split": {"columns": ["n", "age", "net income"], "data": [[3, 1, 2]]}}',
            JSON,
        ),
        (
            b'{"dataframe_split": {"columns": ["n", "net income", "age"], "data": [[3, 2, 1]], "index": [7]}}',
            JSON,
        ),
        (b'{"dataframe_records": [{"n": 3, "age": 1, "net income": 2}]}', JSON),
        (b"net income,n,age\n2,3,1\n", CSV),
        (b'{"dataframe_split": {"data": [[1, 2, 3]]}}', JSON),
        (b'{"dataframe_split": {"columns": [0, 1, 2], "data": [[1, 2, 3]]}}', JSON),
        (b'{"dataframe_split": {"columns": ["x"], "data": [[[1, 2, 3]]]}}', JSON),
    ],
)
def test_values_count_for_the_features_they_are_named_for(
    world: World, body: bytes, kind: bytes
) -> None:
    assert invoke(world, body, kind) == ANSWER % b"321.0"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"dataframe_records": [{"n": 3, "age": 1}]}', b"there is no column 'net income'"),
        (
            b'{"dataframe_records": [{"n": 3, "age": 1, "height": 2}]}',
            b"there is no column 'net income'",
        ),
        (
            b'{"dataframe_records": [{"n": 3, "age": 1, "net income": 2, "id": 4}]}',
            b"does not know the column 'id'",
        ),
    ],
)
def test_other_names_than_those_of_the_training_are_refused(
    world: World, body: bytes, told: bytes
) -> None:
    answer = invoke(world, body)
    assert told in answer
    assert b"the model was trained with the columns age, net income, n" in answer


def test_clients_are_told_the_columns_of_the_training(world: World) -> None:
    connection, transport = world.http1()
    connection.data_received(b"GET /v1/models/m/metadata HTTP/1.1\r\nHost: h\r\n\r\n")
    world.loop.settle()
    assert isinstance(transport, Transport)
    document = json.loads(transport.written.partition(b"\r\n\r\n")[2])
    assert trained_columns(document, None) == ("age", "net income", "n")


def test_columns_that_are_sent_as_inputs_are_told_how_a_table_is_sent() -> None:
    (signature, *_) = described(Regression()).values()
    with pytest.raises(BadRequest, match=r"columns of 'x' are sent together.*dataframe_records"):
        signature.check_names({"age": 1, "n": 2})
    with pytest.raises(BadRequest) as other:
        signature.check_names({"age": 1, "weight": 2})
    assert "dataframe_records" not in str(other.value)
