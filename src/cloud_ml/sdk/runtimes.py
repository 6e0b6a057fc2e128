# Made of aio/runtimes.py by tools/twins.py: change that one, then run `make format`.
"""Runtimes over the modern surface."""

from __future__ import annotations

from collections.abc import Generator

from cloud_ml.models import codec
from cloud_ml.models.jobs.framework import PreparationLine, Runtime, RuntimePage
from cloud_ml.sdk.messages import Request, segment
from cloud_ml.sdk.pieces import document_of
from cloud_ml.sdk.transport import Transport

_PATH = "/api/v1/runtimes"


class RuntimeCalls:
    """One method for each operation on runtimes."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    def list(self, framework: str | None = None) -> list[Runtime]:
        """Every runtime, or those of one framework."""
        path = f"{_PATH}/{segment(framework)}" if framework else _PATH
        return codec.decode(
            RuntimePage, self.transport.json(Request("GET", path)), ignore_unknown=True
        ).items

    def prepare(self, framework: str, version: str | None) -> Generator[PreparationLine]:
        """What happens while a runtime is installed; asked when the first line is."""
        request = Request(
            "POST",
            f"{_PATH}/{segment(framework)}/prepare",
            query={"version": version},
            same_twice=True,
        )
        with self.transport.send(request) as answer:
            rest = b""
            for chunk in answer:
                *lines, rest = (rest + chunk).split(b"\n")
                for line in filter(None, lines):
                    yield document_of(PreparationLine, line)

    def remove(self, framework: str, version: str | None) -> None:
        """Remove what is installed of a runtime."""
        request = Request(
            "DELETE", f"{_PATH}/{segment(framework)}", query={"version": version}, same_twice=True
        )  # fmt: skip
        with self.transport.send(request) as answer:
            answer.read()
