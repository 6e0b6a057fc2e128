from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence

import pytest

from cloud_ml.engines.abilities import RuntimeState
from cloud_ml.errors import Unavailable
from cloud_ml.models import codec
from cloud_ml.models.jobs.framework import PreparationLine, RuntimePage
from support.platform import Served

pytestmark = pytest.mark.anyio
STATES = [
    RuntimeState("python", "3.11", default=True, ready=True, size_bytes=5, packages=("pip==1",)),
    RuntimeState(
        "tensorflow", "2.21", default=True, aliases=("tf",), accepts=("2",), environment={"A": "b"}
    ),
    RuntimeState("tensorflow", "1"),
]


class Keeps:
    """The capability of an engine, as it is asked for."""

    def __init__(self) -> None:
        self.broken = ""
        self.used = False

    async def runtimes(self) -> Sequence[RuntimeState]:
        return STATES

    async def prepare_runtime(self, name: str, version: str | None) -> AsyncIterator[str]:
        yield f"Downloading {name}"
        yield ""
        if self.broken:
            raise Unavailable(self.broken)

    async def remove_runtime(self, name: str, version: str | None) -> bool:
        return not self.used


@pytest.fixture
def keeps(served: Served, monkeypatch: pytest.MonkeyPatch) -> Keeps:
    keeps = Keeps()
    for name in ("runtimes", "prepare_runtime", "remove_runtime"):
        monkeypatch.setattr(served.engine, name, getattr(keeps, name), raising=False)
    return keeps


async def page(served: Served, path: str) -> RuntimePage:
    return codec.decode(RuntimePage, (await served.member.call("GET", path)).json())


async def prepared(served: Served, path: str) -> list[PreparationLine]:
    answer = await served.admin.call("POST", path)
    assert answer.status == 200, answer.text
    return [codec.decode(PreparationLine, json.loads(line)) for line in answer.text.splitlines()]


async def test_everybody_sees_what_is_ready(served: Served, keeps: Keeps) -> None:
    listed = (await page(served, "/api/v1/runtimes")).items
    assert [(one.name, one.version, one.ready) for one in listed] == [
        ("python", "3.11", True),
        ("tensorflow", "2.21", False),
        ("tensorflow", "1", False),
    ]
    assert listed[0].packages == ["pip==1"]
    assert [one.version for one in (await page(served, "/api/v1/runtimes/tensorflow")).items] == [
        "2.21",
        "1",
    ]


async def test_an_engine_without_the_capability_lists_the_catalogue(served: Served) -> None:
    listed = (await page(served, "/api/v1/runtimes")).items
    assert [(one.name, one.version) for one in listed] == [
        ("python", "3.11"),
        ("tensorflow", "2.21"),
        ("tensorflow", "1"),
    ]
    refused = await served.admin.call("POST", "/api/v1/runtimes/python/prepare")
    assert (refused.status, refused.json()["code"]) == (400, "invalid")


async def test_a_preparation_is_told_line_by_line(served: Served, keeps: Keeps) -> None:
    lines = await prepared(served, "/api/v1/runtimes/tensorflow/prepare?version=2.21")
    assert [line.message for line in lines] == ["Downloading tensorflow", "", "ready"]
    assert lines[-1].runtime is not None
    assert (lines[-1].runtime.version, lines[-1].runtime.environment) == ("2.21", {"A": "b"})


async def test_a_preparation_that_fails_says_why_at_the_end(served: Served, keeps: Keeps) -> None:
    keeps.broken = "no index answers"
    last = (await prepared(served, "/api/v1/runtimes/python/prepare"))[-1]
    assert (last.error, last.runtime) == ("no index answers", None)


async def test_only_administrators_prepare_and_remove(served: Served, keeps: Keeps) -> None:
    for method, path in (
        ("POST", "/api/v1/runtimes/python/prepare"),
        ("DELETE", "/api/v1/runtimes/python"),
    ):
        answer = await served.member.call(method, path)
        assert (answer.status, answer.json()["code"]) == (403, "forbidden")


@pytest.mark.parametrize(
    ("path", "status", "field"),
    [("torch/prepare", 404, "framework"), ("tensorflow/prepare?version=9", 400, "version")],
)
async def test_unknown_ones_are_refused_by_name(
    served: Served, keeps: Keeps, path: str, status: int, field: str
) -> None:
    answer = await served.admin.call("POST", f"/api/v1/runtimes/{path}")
    assert (answer.status, answer.json()["field"]) == (status, field)
    assert (await served.member.call("GET", "/api/v1/runtimes/torch")).status == 404


async def test_what_is_used_is_not_removed(served: Served, keeps: Keeps) -> None:
    assert (await served.admin.call("DELETE", "/api/v1/runtimes/python?version=3.11")).status == 204
    keeps.used = True
    answer = await served.admin.call("DELETE", "/api/v1/runtimes/python")
    assert (answer.status, answer.json()["code"]) == (409, "conflict")
