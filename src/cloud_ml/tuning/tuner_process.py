"""One process that chooses parameters: it answers one question at a time, and may die at any."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from cloud_ml.errors import Unavailable
from cloud_ml.tuning.known_studies import UNKNOWN, SentStudies

logger = logging.getLogger(__name__)

MODULE = "cloud_ml.tuning.program"
OPTUNA_MODULE = "cloud_ml.tuning.optuna_program"
"""What a process runs: our algorithms, or the samplers of Optuna. One of ours does not load Optuna."""
_LINE_BYTES = 1 << 20
# OpenBLAS reserves memory for each of its threads, and the addresses of the process are limited.
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_LAST_WORDS = 2000


Ask = Callable[[SentStudies], Mapping[str, Any]]


class TunerProcess:
    """Starts with the first question, and again after it has ended.

    Args:
        user: The user and group id of the process, where this one is root; 0: its own.
        memory_bytes: The address space that it may have.
        module: What it runs.
    """

    def __init__(self, *, user: int, memory_bytes: int, module: str) -> None:
        self.module = module
        self._user = user
        self._memory = memory_bytes
        self._process: asyncio.subprocess.Process | None = None
        self._sent = SentStudies()

    @property
    def pid(self) -> int | None:
        """The process that runs, if one does."""
        running = self._process is not None and self._process.returncode is None
        return self._process.pid if running and self._process is not None else None

    async def ask(self, request: Ask, limit_s: float) -> Mapping[str, Any]:
        """One question and its answer, its start included. A process that ends is replaced once.
        ``request`` makes the question of what the process has been sent before.

        Raises:
            Unavailable: It cannot be started, ends twice, or takes too long; with the reason.
        """
        try:
            return await self._exchange(request, limit_s)
        except EOFError:  # it was killed, and another one may do better
            pass
        try:
            return await self._exchange(request, limit_s)
        except EOFError as error:
            raise Unavailable(f"the tuner ended twice: {error}") from error

    async def close(self) -> None:
        """End the process, if there is one."""
        if (process := self._process) is None:
            return
        self._process = None
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        # Also if whoever closes it is cancelled: a process that is not waited for stays a zombie.
        await asyncio.shield(process.wait())

    def retire(self) -> None:
        """End the process: at the end of its input it goes."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process = None

    async def _exchange(self, request: Ask, limit_s: float) -> Mapping[str, Any]:
        """One question and its answer.

        Raises:
            EOFError: The process ended; with the reason.
        """
        try:
            async with asyncio.timeout(limit_s):
                process = self._process or await self._start()
                assert process.stdin is not None
                while True:
                    question = request(self._sent)
                    process.stdin.write(json.dumps(question).encode() + b"\n")
                    with contextlib.suppress(ConnectionError):
                        await process.stdin.drain()
                    answer: dict[str, Any] = json.loads(await self._line(process))
                    if answer != UNKNOWN:
                        return answer
                    self._sent.forget(question["study"])
        except TimeoutError as error:
            await self.close()
            raise Unavailable(f"the tuner gave no answer within {limit_s:g} s") from error
        except ValueError as error:
            await self.close()
            raise Unavailable("the answer of the tuner is not valid JSON") from error
        except BaseException:  # also one who asked and goes: the answer would be the next one's
            await self.close()
            raise

    async def _start(self) -> asyncio.subprocess.Process:
        arguments = (os.getpid(), self._memory, self._user)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-W", "ignore", "-m", self.module, *map(str, arguments),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE, env=dict.fromkeys(_THREADS, "1"), cwd="/",
            # A Ctrl-C at the server's terminal goes to its group. The server ends its tuners itself.
            start_new_session=True, limit=_LINE_BYTES,
        )  # fmt: skip
        self._process, self._sent = process, SentStudies()
        if await self._line(process) != b"ready\n":
            raise EOFError("it does not speak our protocol")
        logger.info("the tuner has started as process %d", process.pid)
        return process

    async def _line(self, process: asyncio.subprocess.Process) -> bytes:
        assert process.stdout is not None
        assert process.stderr is not None
        line = await process.stdout.readline()
        if line.endswith(b"\n"):
            return line
        stderr_text = (await process.stderr.read(_LAST_WORDS)).decode(errors="replace").strip()
        code = await process.wait()
        last = stderr_text.splitlines()[-1] if stderr_text else f"exit code {code}"
        raise EOFError(last)
