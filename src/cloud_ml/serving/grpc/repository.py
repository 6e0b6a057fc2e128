"""The model repository: Triton's extension, and MLServer's service with the same methods."""

from typing import Any

from cloud_ml.serving.errors import BadRequest, ModelNotFound, NotNow, ServingError
from cloud_ml.serving.grpc.calls import GrpcCall
from cloud_ml.serving.grpc.messages import Handler, reply
from cloud_ml.serving.oip import model_documents
from cloud_ml.serving.protos import message
from cloud_ml.serving.versions.version_manager import Done, VersionManager

MLSERVER = "inference.model_repository.ModelRepositoryService"


class Repository:
    """Lists models, and loads and unloads them where ``control`` allows callers to.

    ``package`` is that of its messages.
    """

    def __init__(self, package: str, manager: VersionManager, *, control: bool) -> None:
        self._package = package
        self._manager = manager
        self._control = control

    @property
    def handlers(self) -> dict[str, Handler]:
        """The methods by name."""
        return {
            "RepositoryIndex": self._index,
            "RepositoryModelLoad": self._load,
            "RepositoryModelUnload": self._unload,
        }

    def _index(self, _call: GrpcCall, request: Any) -> Any:
        _check_repository(request)
        entries = model_documents.repository_index(self._manager, only_ready=request.ready)
        return message(f"{self._package}.RepositoryIndexResponse")(models=entries)

    def _load(self, call: GrpcCall, request: Any) -> None:
        self._check_allowed(request)
        self._manager.load(request.model_name, self._done(call, "RepositoryModelLoadResponse"))

    def _unload(self, call: GrpcCall, request: Any) -> None:
        self._check_allowed(request)
        self._manager.unload(request.model_name, self._done(call, "RepositoryModelUnloadResponse"))

    def _check_allowed(self, request: Any) -> None:
        if not self._control:
            raise NotNow(
                "models cannot be changed by callers: start the server with --allow_model_control"
            )
        _check_repository(request)
        for name in getattr(request, "parameters", ()):  # MLServer's messages have none
            if name != "unload_dependents":
                raise BadRequest(f"parameter {name!r} is not offered by this server")

    def _done(self, call: GrpcCall, answer: str) -> Done:
        def done(error: ServingError | None) -> None:
            if error is not None:
                call.fail(error)
            else:
                reply(call, message(f"{self._package}.{answer}")())

        return done


def _check_repository(request: Any) -> None:
    if request.repository_name:
        raise ModelNotFound(
            f"there is no repository {request.repository_name!r}; the only one has no name"
        )
