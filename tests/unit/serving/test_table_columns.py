"""Tables whose columns have the names of the training, in whatever order they come."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

from cloud_ml.errors import InvalidRequest
from cloud_ml.sdk.models.inference import Table, trained_columns
from cloud_ml.serving.dtypes import DOUBLE
from cloud_ml.serving.errors import BadRequest
from cloud_ml.serving.loaded import LoadedVersion
from cloud_ml.serving.rest import dataframes
from cloud_ml.serving.rest.about import columns_of
from cloud_ml.serving.runtimes.sklearn import SklearnModel, describe_estimator
from cloud_ml.serving.signatures import Signature, TensorSpec
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
    context = made.table.models["m"].versions[1]._context
    made.table.put(
        LoadedVersion("m", 1, SklearnModel(Regression(), describe_estimator(Regression())), context)
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
    ("body", "expected"),
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
    world: World, body: bytes, expected: bytes
) -> None:
    answer = invoke(world, body)
    assert expected in answer
    assert b"the model was trained with the columns age, net income, n" in answer


def test_clients_are_told_the_columns_of_the_training(world: World) -> None:
    connection, transport = world.http1()
    connection.data_received(b"GET /v1/models/m/metadata HTTP/1.1\r\nHost: h\r\n\r\n")
    world.loop.settle()
    assert isinstance(transport, Transport)
    document = json.loads(transport.written.partition(b"\r\n\r\n")[2])
    assert trained_columns(document, None) == ("age", "net income", "n")


def test_columns_that_are_sent_as_inputs_are_told_how_a_table_is_sent() -> None:
    (signature, *_) = describe_estimator(Regression()).values()
    with pytest.raises(BadRequest, match=r"columns of 'x' are sent together.*dataframe_records"):
        signature.check_names({"age": 1, "n": 2})
    with pytest.raises(BadRequest) as other:
        signature.check_names({"age": 1, "weight": 2})
    assert "dataframe_records" not in str(other.value)


class Wide(Regression):
    """Has more columns than a model tells."""

    n_features_in_ = 3
    feature_names_in_ = np.array([letter * 30_000 for letter in "abc"], object)


def test_columns_that_are_too_long_are_left_empty(world: World) -> None:
    context = world.table.models["m"].versions[1]._context
    wide = LoadedVersion("m", 1, SklearnModel(Wide(), describe_estimator(Wide())), context)
    assert columns_of(wide) == {"serving_default": {"x": ()}}


NAMES = ["x", "a", "b", "net income", "net_income", "0", "1", "2"]


def test_clients_order_columns_as_the_server_does() -> None:
    chosen = random.Random(1)
    ordered = refused = 0
    for _ in range(5_000):
        trained = tuple(chosen.sample(NAMES, chosen.randrange(2, 4)))
        given = chosen.sample(NAMES, chosen.choice([len(trained), len(trained), 2, 4]))
        if chosen.random() < 0.5:
            given = chosen.sample(trained, len(trained))
        rows = [[float(place) for place in range(len(given))]]
        signature = Signature(
            "s", (TensorSpec("x", DOUBLE, (-1, len(trained)), columns=trained),), ()
        )
        try:
            right = dataframes.tensors(dataframes.Table(given, rows), signature, texts=False)["x"]
        except BadRequest:
            right = None
        try:
            found = Table(tuple(given), rows).for_inputs(["x"], trained)
        except InvalidRequest:
            found = None
        if isinstance(found, dict):  # columns named as inputs are: the server refuses the others
            assert right is None or len(given) == 1, (trained, given)
            continue
        assert found == right, (trained, given)
        ordered, refused = ordered + (found is not None), refused + (found is None)
    assert min(ordered, refused) > 500


@pytest.mark.parametrize("sign", ["\x0b", "\x0c", "\x85", "\u2028"])
def test_only_a_line_end_ends_a_row_of_csv(sign: str) -> None:
    table = dataframes.from_csv(f'a,b\n1{sign}2,3\r\n"4\n5",6\n', header=True)
    assert table.rows == [[f"1{sign}2", "3"], ["4\n5", "6"]]
