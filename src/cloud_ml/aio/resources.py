"""The calls about any kind of resource, by its description.

::

    notes = AsyncCloudMlClient().resources(NOTES)
    await notes.create(NewNote(name="first", text="hello"))
    note = await notes.wait("first")
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Generic, TypeVar

from cloud_ml.aio.answers import AsyncAnswer
from cloud_ml.aio.transport import AsyncTransport
from cloud_ml.aio.waiting import wait_for_end
from cloud_ml.aio.watching import follow_events, follow_stream
from cloud_ml.errors import NotFound
from cloud_ml.models import codec
from cloud_ml.models.jobs.job import JobEvent, JobEvents
from cloud_ml.models.resource import NewResource, ResourceChange, ResourceType, ResourceView
from cloud_ml.sdk.failures import AlreadyDeleted
from cloud_ml.sdk.messages import READ_TIMEOUT_S, Request, json_request, segment, watching
from cloud_ml.sdk.timeouts import LONG_POLL_S, PATIENCE

NewT = TypeVar("NewT", bound=NewResource)
ViewT = TypeVar("ViewT", bound=ResourceView)
_PAGE = 200


class AsyncResources(Generic[NewT, ViewT]):
    """The resources of one kind.

    Every method raises ``Forbidden`` for what the caller's role may not, ``NotFound`` for what is
    absent, and ``CloudMlError`` as ``AsyncTransport.json`` does.
    """

    def __init__(self, transport: AsyncTransport, described: ResourceType[NewT, ViewT]) -> None:
        self._transport = transport
        self._type = described

    async def create(self, new: NewT) -> ViewT:
        """Create one. However often the request has to be sent, one is made.

        Raises:
            InvalidRequest: A field is wrong.
            AlreadyExists: The name is taken.
        """
        key = os.urandom(16).hex()
        return await self._ask(
            json_request("POST", self._type.path, codec.encode_given(new), idempotency_key=key)
        )

    async def describe(
        self, name: str, *, newer_than: int | None = None, wait_s: float = 0.0
    ) -> ViewT:
        """One as it stands; with ``newer_than`` as soon as its revision is higher or ``wait_s``
        are over.
        """
        query = {} if newer_than is None else {"wait": f"{wait_s:g}", "revision": newer_than}
        return await self._ask(
            Request("GET", self._path(name), query=query, read_timeout_s=READ_TIMEOUT_S + wait_s)
        )

    async def act(self, name: str, action: str, body: Any = None) -> ViewT:
        """Ask for one of the actions of its type, such as ``stop``, with what it takes.

        Raises:
            NotFound: There is none.
            Conflict: It has ended.
            InvalidRequest: What the action takes is wrong.
        """
        path = f"{self._type.path}/{segment(name)}/{action}"
        sent = None if body is None else codec.encode_given(body)
        return await self._ask(json_request("POST", path, sent))

    async def delete(self, name: str) -> None:
        """Ask for removal."""
        try:
            await self._ask(Request("DELETE", self._path(name)))
        except AlreadyDeleted:
            return

    async def events(self, name: str, *, after: int = 0) -> list[JobEvent]:
        """What was said about one, in order, behind the event with the id ``after``."""
        request = Request("GET", f"{self._path(name)}/events", query={"after": after or None})
        return codec.decode(
            JobEvents, await self._transport.json(request), ignore_unknown=True
        ).items

    async def watch_events(self, name: str, *, after: int = 0) -> AsyncGenerator[JobEvent]:
        """What is said about one, as it is said, until it is gone; cut connections are made
        anew.
        """

        async def open_stream(at: int | None) -> AsyncAnswer:
            return await self._transport.send(watching(f"{self._path(name)}/events/watch", at))

        async with aclosing(follow_events(open_stream, after=after or None)) as events:
            async for event in events:
                yield event

    async def watch(
        self, name: str | None = None, *, after: int | None = None
    ) -> AsyncGenerator[ResourceChange]:
        """Changes of one, or of all, as they happen; cut connections are made anew. ``after`` is a
        revision.

        Raises:
            StartAgain: The server's database was restored from a backup since: list again, and
                watch from there.
        """
        path = f"{self._type.path}/-/watch" if name is None else f"{self._path(name)}/watch"

        async def open_stream(at: int | None) -> AsyncAnswer:
            return await self._transport.send(watching(path, at))

        stream = follow_stream(
            open_stream, ResourceChange, ("changed", "gone"), after=after, patience=PATIENCE
        )
        async with aclosing(stream) as changes:
            async for change in changes:
                if change.resource is None:
                    yield change
                    if name is not None:
                        return
                    continue
                yield replace(
                    change,
                    resource=codec.decode(self._type.view, change.resource, ignore_unknown=True),
                )

    async def wait(self, name: str, timeout: float | None = None) -> ViewT:
        """Wait until one has ended, well or not; the caller looks at its ``phase``.

        A server that restarts meanwhile is waited for, about two minutes.

        Args:
            name: Its name.
            timeout: Seconds; ``None`` waits for ever.

        Raises:
            WaitTimedOut: It has not ended by then.
        """
        ends = self._type.succeeded | self._type.failed
        return await wait_for_end(
            await self.describe(name),
            lambda last, wait_s: self.describe(name, newer_than=last.revision, wait_s=wait_s),
            state=lambda view: f"{view.name} is still {view.phase}",
            ended=lambda view: view.phase in ends,
            timeout=timeout,
        )

    async def wait_until_gone(self, name: str) -> None:
        """Wait until one that is being deleted is gone and its name is free."""
        try:
            view = await self.describe(name)
            while True:
                # By its id: once it is gone, another one may have the same name.
                view = await self.describe(view.uid, newer_than=view.revision, wait_s=LONG_POLL_S)
        except NotFound:
            return

    async def list(
        self, *, phases: Collection[str] = (), limit: int | None = None
    ) -> AsyncGenerator[ViewT]:
        """Newest first, at most ``limit``; with ``phases`` only those in one of these."""
        left, after = sys.maxsize if limit is None else limit, None
        while left > 0:
            query = {"limit": min(left, _PAGE), "after": after, "phase": list(phases) or None}
            document = await self._transport.json(Request("GET", self._type.path, query=query))
            for item in document["items"][:left]:
                yield codec.decode(self._type.view, item, ignore_unknown=True)
            left -= len(document["items"])
            if (after := document.get("next")) is None:
                return

    def _path(self, name: str) -> str:
        return f"{self._type.path}/{segment(name)}"

    async def _ask(self, request: Request) -> ViewT:
        return await self._transport.ask(self._type.view, request)
