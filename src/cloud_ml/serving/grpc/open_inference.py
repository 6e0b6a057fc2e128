"""The Open Inference Protocol's other methods, with extensions of Triton."""

from typing import Any

from cloud_ml import __version__
from cloud_ml.serving.errors import BadRequest
from cloud_ml.serving.grpc.calls import GrpcCall
from cloud_ml.serving.grpc.infer import find, number_of
from cloud_ml.serving.grpc.messages import Handler
from cloud_ml.serving.grpc.repository import Repository
from cloud_ml.serving.oip import model_documents, statistics
from cloud_ml.serving.protos import message
from cloud_ml.serving.table import ModelTable
from cloud_ml.serving.versions.version_manager import VersionManager

SERVICE = "inference.GRPCInferenceService"


class OpenInference:
    """Health, metadata, statistics and the repository. ``control`` allows callers to load and
    unload models.
    """

    def __init__(self, table: ModelTable, manager: VersionManager, *, control: bool) -> None:
        self._table = table
        self._manager = manager
        self._repository = Repository("inference", manager, control=control)

    @property
    def handlers(self) -> dict[str, Handler]:
        """The methods by name."""
        return {
            "ServerLive": lambda _call, _request: _make_message("ServerLiveResponse", live=True),
            "ServerReady": lambda _call, _request: _make_message(
                "ServerReadyResponse", ready=self._manager.ready
            ),
            "ModelReady": self._model_ready,
            "ServerMetadata": self._server,
            "ModelMetadata": self._model,
            "ModelConfig": self._config,
            "ModelStatistics": self._statistics,
            **self._repository.handlers,
        }

    def _server(self, _call: GrpcCall, _request: Any) -> Any:
        extensions = model_documents.EXTENSIONS
        return _make_message(
            "ServerMetadataResponse",
            name="cloudml-serve",
            version=__version__,
            extensions=extensions,
        )

    def _model_ready(self, _call: GrpcCall, request: Any) -> Any:
        if not request.name:
            raise BadRequest("name is empty")
        number = number_of(request.version)
        model = self._table.models.get(request.name)
        ready = model is not None and (
            number in model.versions if number is not None else bool(model.versions)
        )
        return _make_message("ModelReadyResponse", ready=ready)

    def _model(self, _call: GrpcCall, request: Any) -> Any:
        version = find(self._table, request.name, request.version)
        ready = self._table.models[request.name].versions
        document = model_documents.model_metadata(version, ready)
        document["parameters"] = {
            key: {"bool_param" if isinstance(value, bool) else "string_param": value}
            for key, value in document["parameters"].items()
        }
        return _make_message("ModelMetadataResponse", **document)

    def _config(self, _call: GrpcCall, request: Any) -> Any:
        version = find(self._table, request.name, request.version)
        return _make_message("ModelConfigResponse", config=model_documents.model_config(version))

    def _statistics(self, _call: GrpcCall, request: Any) -> Any:
        counted = statistics.of_models(self._table, request.name, number_of(request.version))
        return _make_message("ModelStatisticsResponse", model_stats=counted)


def _make_message(answer: str, /, **fields: Any) -> Any:
    return message(f"inference.{answer}")(**fields)
