"""What the client can ask about the server and its frameworks. ``AsyncCloudMlClient`` has these
methods.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from cloud_ml.aio.runtimes import AsyncRuntimeCalls
    from cloud_ml.aio.transport import AsyncTransport
    from cloud_ml.models.jobs.framework import PreparationLine, Runtime
    from cloud_ml.models.server import ServerInfo, WhoAmI

T = TypeVar("T")


class AsyncServerCalls:
    """The caller, the server and the frameworks that jobs may ask for."""

    if TYPE_CHECKING:

        @cached_property
        def _transport(self) -> AsyncTransport: ...

    async def whoami(self) -> WhoAmI:
        """Whom the server takes the caller for."""
        from cloud_ml.models.server import WhoAmI

        return await self._get("whoami", WhoAmI)

    async def server_info(self) -> ServerInfo:
        """The server's version, and what its machine gives to jobs."""
        from cloud_ml.models.server import ServerInfo

        return await self._get("server", ServerInfo)

    async def frameworks(self) -> dict[str, list[str]]:
        """The frameworks that jobs may ask for, each with its versions."""
        return {
            str(name): [str(one) for one in versions]
            for name, versions in (await self._read("frameworks")).items()
        }

    async def runtimes(self, framework: str | None = None) -> list[Runtime]:
        """Every version of every framework (or of one), and what of it is ready on the server.

        Raises:
            NotFound: There is no such framework.
        """
        return await self._runtimes.list(framework)

    def prepare_framework(
        self, framework: str, version: str | None = None
    ) -> AsyncGenerator[PreparationLine]:
        """Install a framework on the server before a job asks for it; what happens, as it happens.

        For administrators. The last line tells the runtime, or the error. It goes on when nobody
        listens.

        Raises:
            NotFound: There is no such framework.
            InvalidRequest: There is no such version.
            Forbidden: The caller does not run the platform.
        """
        return self._runtimes.prepare(framework, version)

    async def remove_framework(self, framework: str, version: str | None = None) -> None:
        """Remove what is installed of a framework; the next job that needs it installs it again.

        Raises:
            Conflict: A job that is not over uses it.
        """
        await self._runtimes.remove(framework, version)

    @cached_property
    def _runtimes(self) -> AsyncRuntimeCalls:
        from cloud_ml.aio.runtimes import AsyncRuntimeCalls

        return AsyncRuntimeCalls(self._transport)

    async def _get(self, path: str, kind: type[T]) -> T:
        from cloud_ml.models import codec

        return codec.decode(kind, await self._read(path), ignore_unknown=True)

    async def _read(self, path: str) -> Any:
        from cloud_ml.sdk.messages import Request

        return await self._transport.json(Request("GET", f"/api/v1/{path}"))
