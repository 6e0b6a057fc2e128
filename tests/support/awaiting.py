"""The awaiting face of the SDK as if it blocked, so that one test asks both faces the same."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any


class EventLoop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, awaitable: Any) -> Any:
        async def wait() -> Any:
            return await awaitable

        return asyncio.run_coroutine_threadsafe(wait(), self.loop).result(60)

    def make(self, maker: Callable[[], Any]) -> Any:
        async def call() -> Any:
            return maker()

        return Blocking(self, self.run(call()))

    def close(self) -> None:
        async def end() -> list[str]:
            await asyncio.sleep(0)
            rest = [str(task) for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            await self.loop.shutdown_asyncgens()
            return rest

        left = self.run(end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(60)
        self.loop.close()
        assert left == []


class Blocking:
    """Something of the awaiting face: what it gives is waited for."""

    def __init__(self, loop: EventLoop, thing: Any) -> None:
        self.__dict__.update(_loop=loop, _thing=thing)

    def __getattr__(self, name: str) -> Any:
        name = {"close": "aclose" if hasattr(self._thing, "aclose") else "close"}.get(name, name)
        return self._seen(getattr(self._thing, name))

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._seen(self._loop.make(lambda: self._thing(*args, **options))._thing)

    def __iter__(self) -> Iterator[Any]:
        items = self._thing.__aiter__()
        while True:
            try:
                yield self._seen(self._loop.run(items.__anext__()))
            except StopAsyncIteration:
                return

    def __next__(self) -> Any:
        try:
            return self._seen(self._loop.run(self._thing.__anext__()))
        except StopAsyncIteration:
            raise StopIteration from None

    def __enter__(self) -> Any:
        return self._seen(self._loop.run(self._thing.__aenter__()))

    def __exit__(self, *error: object) -> None:
        self._loop.run(self._thing.__aexit__(*error))

    def __repr__(self) -> str:
        return repr(self._thing)

    def _seen(self, thing: Any) -> Any:
        if inspect.isawaitable(thing):
            thing = self._loop.run(thing)
        awaiting = type(thing).__module__.startswith("cloud_ml.aio") or isinstance(
            thing, AsyncIterator
        )
        return Blocking(self._loop, thing) if awaiting or inspect.ismethod(thing) else thing


@contextmanager
def event_loop() -> Iterator[EventLoop]:
    loop = EventLoop()
    try:
        yield loop
    finally:
        loop.close()
