"""Runtimes of this machine: their state, preparations in processes of their own, and room on the
disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from cloud_ml.engines.abilities import RuntimeState
from cloud_ml.engines.local.config import LocalConfig
from cloud_ml.environments import ahead, evict
from cloud_ml.environments.ahead import PreparationRequest, State
from cloud_ml.environments.base import EnvironmentFailed
from cloud_ml.environments.packages import settled
from cloud_ml.errors import InvalidRequest, Unavailable

_log = logging.getLogger(__name__)
_LINE_BYTES = 1 << 20
_SETTLE_S = 60.0
_SILENCE_S = 15.0


@dataclass
class _Preparation:
    """One that goes on; whoever wants to know reads ``lines`` and waits for ``changed``."""

    lines: list[str] = field(default_factory=list)
    problem: str | None = None
    over: bool = False
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    process: asyncio.subprocess.Process | None = None


class LocalRuntimes:
    """What the local engine keeps of runtimes.

    Args:
        config: How gangs run here.
        limit_bytes: What installed packages may take; 0 means no limit.
        tidy_s: How often room is made.
    """

    def __init__(self, config: LocalConfig, *, limit_bytes: int, tidy_s: float) -> None:
        self._order = PreparationRequest(
            home=config.environments_home,
            uv=config.uv,
            runtimes_dir=config.runtimes_dir,
            python=config.python,
            pythons=config.pythons,
            timeout_s=config.tool_timeout_s,
        )
        self._limit = limit_bytes
        self._tidy_s = tidy_s
        self._going: dict[str, _Preparation] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Make room now and then, and have what was built on the disk."""
        self._run(self._settle())
        if self._limit:
            self._run(self._tidy())

    async def close(self) -> None:
        """End what goes on; what is half made is cleared by whoever asks next."""
        for going in self._going.values():
            if going.process is not None and going.process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    going.process.terminate()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def states(self) -> Sequence[RuntimeState]:
        """Every runtime that is offered."""
        return [
            _runtime_state(state) for state in await asyncio.to_thread(ahead.states, self._order)
        ]

    async def prepare(self, name: str, version: str | None) -> AsyncIterator[str]:
        """See ``engines.abilities.Runtimes``."""
        order = self._make_request(name, version)
        key = self._order.catalog.find(name, version).label
        going = self._going.get(key)
        if going is None:
            going = self._going[key] = _Preparation()
            self._run(self._prepare(key, order, going))
        shown = 0
        while True:
            await _more(going, shown)
            new = going.lines[shown:]
            for line in new or ([] if going.over else [""]):
                yield line
            shown += len(new)
            if going.over:
                break
        if going.problem is not None:
            raise Unavailable(f"{key} cannot be prepared: {going.problem}")

    async def remove(self, name: str, version: str | None) -> bool:
        """See ``engines.abilities.Runtimes``."""
        state = await asyncio.to_thread(ahead.remove, self._make_request(name, version))
        return not (state.ready and state.packages)

    def _make_request(self, name: str, version: str | None) -> PreparationRequest:
        try:
            self._order.catalog.find(name, version)
        except EnvironmentFailed as error:
            raise InvalidRequest(
                error.message, field="framework", value=f"{name} {version or ''}".strip()
            ) from error
        return replace(self._order, framework=name, version=version)

    async def _prepare(self, key: str, order: PreparationRequest, going: _Preparation) -> None:
        try:
            going.process = process = await asyncio.create_subprocess_exec(
                sys.executable,
                # Isolated mode: neither PYTHONPATH nor the working directory affects its imports.
                "-I",
                "-m",
                "cloud_ml.environments.ahead",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                # A longer line raises an error; asyncio's default limit is 64 KiB.
                limit=_LINE_BYTES,
                start_new_session=True,
                cwd="/",
            )
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(asdict(order)).encode())
            process.stdin.close()
            # This remains if the process is killed before it reports a result.
            going.problem = "it ended before it was done"
            async for line in process.stdout:
                await self._handle_line(line, going)
            await process.wait()
        except OSError as error:
            going.problem = str(error)
        finally:
            del self._going[key]
            async with going.changed:
                going.over = True
                going.changed.notify_all()

    async def _handle_line(self, line: bytes, going: _Preparation) -> None:
        try:
            event = json.loads(line)
        except ValueError:
            _log.warning("preparing a runtime: %s", line.decode("utf-8", "replace").rstrip())
            return
        async with going.changed:
            if "log" in event:
                going.lines += str(event["log"]).splitlines()
            else:
                going.problem = str(event["message"]) if "failed" in event else None
            going.changed.notify_all()

    async def _tidy(self) -> None:
        home = Path(self._order.home)
        while True:
            try:
                gone = await asyncio.to_thread(
                    evict.make_room, home, self._limit, Path(self._order.uv)
                )
                if gone:
                    _log.info("%d unused folders of packages are removed", len(gone))
            except OSError:
                _log.exception("room for packages could not be made")
            await asyncio.sleep(self._tidy_s)

    async def _settle(self) -> None:
        while True:
            await asyncio.sleep(_SETTLE_S)
            try:
                await asyncio.to_thread(settled.settle, Path(self._order.home))
            except OSError:
                _log.exception("what was built of packages could not be forced to the disk")

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _more(going: _Preparation, shown: int) -> None:
    """Wait until there is more to show, or for so long that those who listen should hear
    something.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_SILENCE_S), going.changed:
            await going.changed.wait_for(lambda: going.over or len(going.lines) > shown)


def _runtime_state(state: State) -> RuntimeState:
    one = state.runtime
    return RuntimeState(
        name=one.name,
        version=one.version,
        summary=one.summary,
        default=one.default,
        aliases=one.aliases,
        accepts=one.accepts,
        python=state.python,
        ready=state.ready,
        size_bytes=state.size,
        base_memory=one.base_memory,
        requires=one.requires,
        packages=state.packages,
        environment=one.environment,
        threads=one.threads,
        preload=one.preload,
    )
