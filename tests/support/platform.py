"""A platform in memory with its two front doors, and callers who sign."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import FastAPI

from cloud_ml.api.app import create_app
from cloud_ml.api.platform import Platform
from cloud_ml.auth import legacy, signature
from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.tenancy import ACCESS_KEY, SYSTEM
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.engines.fake import FakeEngine
from cloud_ml.engines.gang import Gang, GangKey, ProcessPlan
from cloud_ml.models.server import ServerInfo
from cloud_ml.objects.memory import MemoryObjectStore
from cloud_ml.settings import ApiSettings
from cloud_ml.state.memory import MemoryStateStore
from cloud_ml.usecases.access.identities import Identities, Identity
from cloud_ml.usecases.first_start import bootstrap
from cloud_ml.usecases.resources import Resource
from support.asgi import Answer, AsgiClient, Exchange
from support.sealing import PlainSealer

TRAINER = "fds://cloudml/trainers/linear-1.0.tar.gz"
_IDLE_APPS: list[FastAPI] = []
"""Applications to be had again, over another platform: the first request of a fresh one takes
half a second.
"""


class ManualClock:
    """Stands still until it is moved."""

    def __init__(
        self, now: datetime = datetime(2026, 11, 20, 12, 0, 0, 250_000, tzinfo=UTC)
    ) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


class FewFrameworks:
    """A catalogue of two."""

    offered: Mapping[str, Sequence[str]] = {"python": ["3.11"], "tensorflow": ["2.21", "1"]}

    def refusal(self, framework: str, version: str | None) -> str | None:
        versions = self.offered.get(framework, ())
        return (
            None
            if versions and version in (None, *versions)
            else f"there is no {framework} {version or ''}"
        )

    def listing(self) -> Mapping[str, Sequence[str]]:
        return self.offered


@dataclass
class Caller:
    """Somebody with a key, and the app to talk to."""

    identity: Identity
    client: AsgiClient
    clock: ManualClock

    async def call(
        self,
        method: str,
        target: str,
        document: Any = None,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """A request of our own scheme; ``document`` is sent as JSON."""
        content = (
            body if body is not None else b"" if document is None else json.dumps(document).encode()
        )
        return await self.client.send(
            method, target, {**self.sign(method, target, content), **(headers or {})}, content
        )

    async def original(self, method: str, target: str, document: Any = None) -> Answer:
        """A request of the original scheme, without a Content-Type."""
        content = b"" if document is None else json.dumps(document).encode()
        return await self.client.send(method, target, self.sign_original(target, content), content)

    def open(self, target: str) -> AbstractAsyncContextManager[Exchange]:
        """A GET whose answer is read as it comes."""
        return self.client.open("GET", target, self.sign("GET", target))

    def open_original(self, target: str) -> AbstractAsyncContextManager[Exchange]:
        """The same in the original scheme."""
        return self.client.open("GET", target, self.sign_original(target))

    def sign(
        self, method: str, target: str, content: bytes | Iterable[bytes] = b""
    ) -> dict[str, str]:
        digest = (
            signature.content_sha256(content)
            if isinstance(content, bytes)
            else signature.UNSIGNED_PAYLOAD
        )
        return signature.sign(
            method,
            target,
            key=self.identity.access_key,
            secret=self.identity.secret,
            now=self.clock(),
            content=digest,
        )

    def sign_original(self, target: str, content: bytes = b"") -> dict[str, str]:
        date = str(int(self.clock().timestamp()))
        digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
        signed = legacy.signature(target.partition("?")[0], date, digest, self.identity.secret)
        return {
            legacy.KEY: self.identity.access_key,
            legacy.DATE: date,
            legacy.CONTENT: digest,
            legacy.AUTHORIZATION: f"{legacy.SCHEME} {signed}",
        }


class Served:
    """Everything, in memory. ``admin`` belongs to organisation 1, ``stranger`` to another."""

    def __init__(
        self,
        settings: ApiSettings | None = None,
        *,
        resources: Sequence[Resource[Any, Any, Any, Any]] = (),
    ) -> None:
        self.clock = ManualClock()
        self.store = MemoryStateStore(clock=self.clock)
        self.engine = FakeEngine()
        self.sealer = PlainSealer()
        identities = Identities(self.store, self.clock)
        self.platform = Platform(
            store=self.store,
            objects=MemoryObjectStore(),
            engine=self.engine,
            catalog=FewFrameworks(),
            identities=identities,
            clock=self.clock,
            info=lambda: ServerInfo(version="1.2.3", isolation={"sandbox": "none"}),
            sealer=self.sealer,
            job_keys=lambda: (b"k" * 32,),
            settings=settings or ApiSettings(),
            resources=resources,
        )
        first = bootstrap(identities, self.platform.storage)
        assert first.admin is not None
        self._reusable = not resources
        self._app = (
            _IDLE_APPS.pop()
            if _IDLE_APPS and self._reusable
            else create_app(self.platform, self.platform.resources)
        )
        self._app.state.platform = self.platform
        self.client = AsgiClient(self._app)
        self.admin = self.as_caller(self._with_legacy(first.admin))
        self.member = self.as_caller(
            identities.create_key(first.organisation, "mei", legacy_signatures=True)
        )
        other = identities.create_organisation("other", default_bucket="others")
        self.platform.storage.create_bucket(other, "others")
        self.stranger = self.as_caller(identities.create_key(other, "zoe", legacy_signatures=True))
        self._numbers = itertools.count(1)

    def _with_legacy(self, identity: Identity) -> Identity:
        """The same key; it may be used with the original client from now on."""
        record = self.store.find(ACCESS_KEY, SYSTEM, identity.access_key)
        assert record is not None
        self.store.change_spec(
            ACCESS_KEY,
            record.key.uid,
            lambda spec: replace(spec, legacy_signatures=True),
            now=self.clock(),
        )
        self.platform.identities.clear()
        return replace(identity, legacy_signatures=True)

    def as_caller(self, identity: Identity) -> Caller:
        return Caller(identity, self.client, self.clock)

    def job(self, **fields: Any) -> dict[str, Any]:
        """A submit body that is accepted."""
        return {
            "job_name": f"linear-{next(self._numbers)}",
            "module_name": "trainer.task",
            "trainer_uri": TRAINER,
            **fields,
        }

    async def submitted(self, caller: Caller | None = None, **fields: Any) -> dict[str, Any]:
        """Submit a job and return its answer."""
        answer = await (caller or self.admin).call("POST", "/api/v1/jobs", self.job(**fields))
        assert answer.status == 201, answer.text
        document: dict[str, Any] = answer.json()
        return document

    def move(self, uid: str, phase: Phase, **changes: Any) -> int:
        """Commit a move as the controller would; returns the new revision."""
        record = self.platform.jobs.get(uid)
        return self.store.commit_status(
            TRAIN_JOB,
            uid,
            record.status.moved(phase, **changes),
            expected_revision=record.revision,
            fence=None,
            now=self.clock(),
        ).revision

    async def run(self, uid: str, attempt: int = 1) -> GangKey:
        """Have the engine run an attempt that waits to be told what to print and when to end."""
        key = GangKey(uid, attempt)
        await self.engine.ensure(
            Gang(key, tenant=1, processes=(ProcessPlan("master", 0, ("fake", "wait")),))
        )
        return key

    def close(self) -> None:
        self.platform.hub.close()
        self.platform.offload.close()
        if self._reusable:
            _IDLE_APPS.append(self._app)
