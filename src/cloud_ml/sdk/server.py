# Made of aio/server.py by tools/twins.py: change that one, then run `make format`.
"""What the client can ask about the server and its frameworks. ``CloudMlClient`` has these
methods.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from cloud_ml.models.jobs.framework import PreparationLine, Runtime
    from cloud_ml.models.server import ServerInfo, WhoAmI
    from cloud_ml.sdk.runtimes import RuntimeCalls
    from cloud_ml.sdk.transport import Transport

T = TypeVar("T")


class ServerCalls:
    """The caller, the server and the frameworks that jobs may ask for."""

    if TYPE_CHECKING:

        @cached_property
        def _transport(self) -> Transport: ...

    def whoami(self) -> WhoAmI:
        """Whom the server takes the caller for."""
        from cloud_ml.models.server import WhoAmI

        return self._get("whoami", WhoAmI)

    def server_info(self) -> ServerInfo:
        """The server's version, and what its machine gives to jobs."""
        from cloud_ml.models.server import ServerInfo

        return self._get("server", ServerInfo)

    def frameworks(self) -> dict[str, list[str]]:
        """The frameworks that jobs may ask for, each with its versions."""
        return {
            str(name): [str(one) for one in versions]
            for name, versions in self._read("frameworks").items()
        }

    def runtimes(self, framework: str | None = None) -> list[Runtime]:
        """Every version of every framework (or of one), and what of it is ready on the server.

        Raises:
            NotFound: There is no such framework.
        """
        return self._runtimes.list(framework)

    def prepare_framework(
        self, framework: str, version: str | None = None
    ) -> Generator[PreparationLine]:
        """Install a framework on the server before a job asks for it; what happens, as it happens.

        For administrators. The last line tells the runtime, or the error. It goes on when nobody
        listens.

        Raises:
            NotFound: There is no such framework.
            InvalidRequest: There is no such version.
            Forbidden: The caller does not run the platform.
        """
        return self._runtimes.prepare(framework, version)

    def remove_framework(self, framework: str, version: str | None = None) -> None:
        """Remove what is installed of a framework; the next job that needs it installs it again.

        Raises:
            Conflict: A job that is not over uses it.
        """
        self._runtimes.remove(framework, version)

    @cached_property
    def _runtimes(self) -> RuntimeCalls:
        from cloud_ml.sdk.runtimes import RuntimeCalls

        return RuntimeCalls(self._transport)

    def _get(self, path: str, kind: type[T]) -> T:
        from cloud_ml.models import codec

        return codec.decode(kind, self._read(path), ignore_unknown=True)

    def _read(self, path: str) -> Any:
        from cloud_ml.sdk.messages import Request

        return self._transport.json(Request("GET", f"/api/v1/{path}"))
