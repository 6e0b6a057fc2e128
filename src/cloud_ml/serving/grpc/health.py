"""gRPC's health protocol: whether the server can answer. Check once, or Watch."""

from typing import Any

from cloud_ml.serving.errors import ModelNotFound
from cloud_ml.serving.grpc.calls import GrpcCall
from cloud_ml.serving.grpc.messages import Handler, parse_message
from cloud_ml.serving.grpc.streams import GrpcStream, Talk
from cloud_ml.serving.protos import message
from cloud_ml.serving.versions.version_manager import VersionManager

SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3
_WATCHERS_LOOKED_AFTER = 64


class Health:
    """The server is healthy when every configured model has a version that answers.

    ``services`` are the names that can be asked for; the empty one is the server as a whole.
    """

    def __init__(self, manager: VersionManager, services: frozenset[str]) -> None:
        self._manager = manager
        self._services = services
        self._watchers: list[_Watcher] = []
        self._prune_at = _WATCHERS_LOOKED_AFTER
        manager.changed(self._tell)

    @property
    def handlers(self) -> dict[str, Handler]:
        """The methods that answer once."""
        return {"Check": self._check}

    def watch(self, stream: GrpcStream) -> "_Watcher":
        """A call of ``Watch``."""
        if len(self._watchers) >= self._prune_at:
            self._watchers = [each for each in self._watchers if each.stream.waits()]
            self._prune_at = max(_WATCHERS_LOOKED_AFTER, 2 * len(self._watchers))
        watcher = _Watcher(self, stream)
        self._watchers.append(watcher)
        return watcher

    def status(self, service: str) -> int:
        """How a service is; ``SERVICE_UNKNOWN`` for one that is not here."""
        if service and service not in self._services:
            return SERVICE_UNKNOWN
        return SERVING if self._manager.ready else NOT_SERVING

    def _check(self, _call: GrpcCall, request: Any) -> Any:
        status = self.status(request.service)
        # The health protocol: Check fails with NOT_FOUND, while Watch sends SERVICE_UNKNOWN and
        # goes on, since the service may come later.
        if status == SERVICE_UNKNOWN:
            raise ModelNotFound(f"there is no service {request.service!r}")
        return message("grpc.health.v1.HealthCheckResponse")(status=status)

    def _tell(self) -> None:
        self._watchers = [each for each in self._watchers if each.stream.waits()]
        for watcher in self._watchers:
            watcher.tell()


class _Watcher(Talk):
    """Who wants to hear of every change."""

    def __init__(self, health: Health, stream: GrpcStream) -> None:
        self.stream = stream
        self._health = health
        self._service: str | None = None
        self._sent_status = 0

    def receive(self, body: bytes) -> None:
        self._service = parse_message("grpc.health.v1.HealthCheckRequest", body).service
        self.tell()

    def ended(self) -> None:
        """It has asked; now it listens."""

    def tell(self) -> None:
        """Send the status, if it is news."""
        if self._service is None:
            return
        status = self._health.status(self._service)
        if status != self._sent_status:
            self._sent_status = status
            self.stream.send(
                message("grpc.health.v1.HealthCheckResponse")(status=status).SerializeToString()
            )
