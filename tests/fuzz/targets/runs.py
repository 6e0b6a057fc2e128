"""What MLflow's clients send: filters, orders, paths of artifacts, fields, names in the registry of
models, users and passwords.
"""

from __future__ import annotations

import base64
import contextlib
import json
import time
from urllib.parse import unquote

from starlette.requests import Request

from cloud_ml.api.mlflow.fields import RequestFields
from cloud_ml.auth import basic
from cloud_ml.domain.tracking import arguments
from cloud_ml.domain.tracking.artifacts import artifact_key
from cloud_ml.domain.tracking.filters import (
    MOST_COMPARISONS,
    Entity,
    Operator,
    OrderKey,
    Subject,
    parse_filter,
    parse_order,
)
from cloud_ml.domain.tracking.matching import FilteredEntity, fulfils
from cloud_ml.errors import InvalidRequest, Unauthenticated
from cloud_ml.models.tracking.run_keys import check_key
from cloud_ml.state.sql.tracking.search import statement
from cloud_ml.state.tracking import RunSearch
from cloud_ml.usecases.tracking import checks, registry_checks
from fuzz.harness import target, text

_FILTERS = [
    "metrics.loss < 0.1 and params.optimizer = \"adam\"",
    "tags.`a b` LIKE '%x_' AND attributes.status IN ('RUNNING', 'FAILED')",
    "run_id NOT IN ('a') AND params.x IS NOT NULL AND end_time >= 1e3",
    "params.x = '1' AND params.x = '2' AND params.y ILIKE 'A%'",
    "metrics.`x` IS NULL", "name = 'it''s' ", "(metrics.a < 1)", "'" * 400, "params." * 400,
]  # fmt: skip
_FACTS = FilteredEntity(
    {"run_name": "a", "status": "RUNNING", "start_time": 1}, {"x": "1"}, {"a b": "x"}, {"m": [1.0]}
)


@target(
    "domain.tracking.filters",
    "domain.tracking.matching",
    "state.sql.tracking.search",
    "state.sql.tracking.times",
    seeds=_FILTERS,
    words=["metrics.", "params.x", "tags.`a`", "AND", "=", "!=", "LIKE", "ILIKE", "IN (", "NOT IN",
           "IS NULL", "'", '"', "`", ",", ")", "%", "_", "1e9", "-inf", "nan", "DESC", "\\", "--"],
)  # fmt: skip
def run_filter(data: bytes) -> None:
    """A filter is refused with its place, or is conditions that a store can be asked for: no text
    of it stands in the statement.
    """
    written = text(data)
    for subject in Subject:
        with contextlib.suppress(InvalidRequest):
            conditions = parse_filter(written, subject)
            assert len(conditions) <= MOST_COMPARISONS
            fulfils(_FACTS, conditions)
            if subject is Subject.RUNS:
                _check_bound(conditions)
    for subject in Subject:
        with contextlib.suppress(InvalidRequest):
            (key,) = parse_order([written], subject)
            assert isinstance(key, OrderKey)
    began = time.process_time()
    with contextlib.suppress(InvalidRequest):
        parse_filter(written * 20)
    assert time.process_time() - began < 2


def _check_bound(conditions: tuple) -> None:  # type: ignore[type-arg]
    for dialect in ("sqlite", "postgresql"):
        query = str(statement(RunSearch("red", ["1"], conditions), dialect))
        for one in conditions:
            values = one.value if isinstance(one.value, tuple) else (one.value,)
            named = one.key if one.entity is not Entity.ATTRIBUTE else ""
            for value in (named, *values):
                if isinstance(value, str) and len(value) > 40:
                    assert value not in query
            assert isinstance(one.operator, Operator)


@target(
    "domain.tracking.artifacts",
    seeds=["a/artifacts/b", "a/artifacts/../b", "models/m/x", "a/artifacts/%2e%2e/b", "..\\x"],
    words=["/", "..", ".", "%2e", "%252e", "%2F", "\\", "artifacts", "models", "\0"],
)
def artifact_path(data: bytes) -> None:
    """A path is refused, or its key stays below the folder of its run or model."""
    with contextlib.suppress(InvalidRequest):
        folder, owner, key = artifact_key(text(data))
        parts = key.split("/")
        assert parts[0] == "mlflow"
        assert parts[1:3] == ([folder, owner] if folder else [owner, "artifacts"])
        assert not {"", ".", ".."} & set(parts)


@target(
    "domain.tracking.arguments",
    seeds=["--lr\n0.1\n--deep\n--x=1", "-a\n-1\n--", "--a=b=c"],
    words=["--", "-", "=", "\n", "lr", "0.1"],
)
def job_arguments(data: bytes) -> None:
    """Arguments become parameters within bounds."""
    found = arguments.parameters_of(text(data).split("\n"))
    assert len(found) <= arguments.MOST_PARAMETERS
    for key, value in found.items():
        assert 0 < len(key) <= arguments.LONGEST_KEY
        assert len(value) <= arguments.LONGEST_VALUE


@target(
    "api.mlflow.fields",
    "models.tracking.run_keys",
    "usecases.tracking.checks",
    seeds=['{"key": "loss", "value": "NaN", "step": "5"}', '{"key": "../a", "value": 1e400}',
           '{"tags": [{"key": "a", "value": "b"}, {"key": "a", "value": "c"}]}', "[]", "{"],
    words=['"key"', '"value"', '"step"', '"tags"', "NaN", '"Infinity"', "{", "}", "[", "]", ":", ","],
)  # fmt: skip
def request_fields(data: bytes) -> None:
    """Fields are refused by their names, or are of their types."""
    request = Request({"type": "http", "method": "POST", "path_params": {}, "query_string": b""})
    with contextlib.suppress(InvalidRequest):
        fields = RequestFields.read(request, data)
        for read in (
            lambda: check_key("key", fields.text("key")),
            lambda: fields.number("value"),
            lambda: fields.integer("step", 0),
            lambda: checks.check_pairs("tags", fields.pairs("tags", most=5), 100),
            lambda: fields.texts("order_by", most=5),
        ):
            with contextlib.suppress(InvalidRequest):
                read()
        json.dumps(fields.values())


@target(
    "usecases.tracking.registry_checks",
    seeds=["runs:/0a/model", "models:/iris/1", "mlflow-artifacts:/1/2/artifacts/../x", "champion",
           "fds://cloudml/%252e%252e/x", "/etc/passwd", "file:///etc", "v12", "LATEST", "Production"],
    words=["runs:/", "fds://", "file:", "..", "%2e", "%25", "/", ":", "v1", "latest", "staging", "٢"],
)  # fmt: skip
def registry_words(data: bytes) -> None:
    """Names, sources and aliases are refused, or mean one thing and stay in their folder."""
    written = text(data)
    with contextlib.suppress(InvalidRequest):
        assert not {"/", ":"} & set(registry_checks.check_model_name("name", written))
    with contextlib.suppress(InvalidRequest):
        source = registry_checks.check_source(written)
        assert not source.startswith(("/", "file:"))
        assert ".." not in unquote(source).split("/")
    with contextlib.suppress(InvalidRequest):
        alias = registry_checks.check_alias(written)
        assert alias.lower() != "latest"
        assert not alias[1:].isdecimal() or alias[0] not in "vV"
    with contextlib.suppress(InvalidRequest):
        assert registry_checks.check_stage("stage", written).value.lower() == written.lower()


@target(
    "auth.basic",
    seeds=["Authorization: Basic " + base64.b64encode(b"AK:secret").decode(), "authorization: basic x"],
    words=["Authorization: ", "Basic ", "\n", "=", ":", base64.b64encode(b":").decode()],
)  # fmt: skip
def user_and_password(data: bytes) -> None:
    """A header is refused, or holds one user and one password."""
    lines = (line.partition(": ") for line in data.decode("latin-1").split("\n"))
    pairs = [(name, value) for name, _, value in lines]
    try:
        found = basic.read(pairs)
    except Unauthenticated:
        return
    assert ":" not in found.access_key
    assert found.secret not in repr(found) or len(found.secret) < 20
