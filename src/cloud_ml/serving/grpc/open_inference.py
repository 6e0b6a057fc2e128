"""The Open Inference Protocol's other methods, with Triton's repository extension."""

from typing import Any

from cloud_ml import __version__
from cloud_ml.serving.errors import BadRequest, ModelNotFound, NotNow, ServingError
from cloud_ml.serving.grpc.calls import GrpcCall
from cloud_ml.serving.grpc.infer import find, number_of
from cloud_ml.serving.grpc.messages import Handler, reply
from cloud_ml.serving.protos import message
from cloud_ml.serving.signatures import Signature
from cloud_ml.serving.table import ModelTable
from cloud_ml.serving.versions.decide import STATES, Phase
from cloud_ml.serving.versions.keeper import Done, Keeper

SERVICE = "inference.GRPCInferenceService"


class OpenInference:
    """Health, metadata and the repository. ``control`` allows callers to load and unload models."""

    def __init__(self, table: ModelTable, keeper: Keeper, *, control: bool) -> None:
        self._table = table
        self._keeper = keeper
        self._control = control

    @property
    def handlers(self) -> dict[str, Handler]:
        """The methods by name."""
        return {
            "ServerLive": lambda _call, _asked: _made("ServerLiveResponse", live=True),
            "ServerReady": lambda _call, _asked: _made("ServerReadyResponse", ready=self._keeper.ready),
            "ModelReady": self._model_ready,
            "ServerMetadata": self._server,
            "ModelMetadata": self._model,
            "RepositoryIndex": self._index,
            "RepositoryModelLoad": self._load,
            "RepositoryModelUnload": self._unload,
        }

    def _server(self, _call: GrpcCall, _asked: Any) -> Any:
        extensions = ["model_repository"]
        return _made("ServerMetadataResponse", name="cloudml-serve", version=__version__, extensions=extensions)

    def _model_ready(self, _call: GrpcCall, asked: Any) -> Any:
        if not asked.name:
            raise BadRequest("name is empty")
        number = number_of(asked.version)
        model = self._table.models.get(asked.name)
        ready = model is not None and (number in model.versions if number is not None else bool(model.versions))
        return _made("ModelReadyResponse", ready=ready)

    def _model(self, _call: GrpcCall, asked: Any) -> Any:
        version = find(self._table, asked.name, asked.version)
        signature = version.signature("")
        ready = sorted(self._table.models[asked.name].versions)
        made = _made("ModelMetadataResponse", name=version.name, versions=[str(number) for number in ready])
        made.platform = version.platform
        _describe(signature, made)
        return made

    def _index(self, _call: GrpcCall, asked: Any) -> Any:
        _one_repository(asked)
        made = message("inference.RepositoryIndexResponse")()
        for name in self._keeper.names:
            statuses = self._keeper.statuses(name)
            for status in statuses:
                if status.phase is Phase.AVAILABLE or not asked.ready:
                    state = STATES[status.phase]
                    made.models.add(name=name, version=str(status.number), state=state, reason=status.message)
            if not statuses and not asked.ready:
                made.models.add(name=name, state="UNAVAILABLE", reason=self._keeper.why_not(name))
        return made

    def _load(self, call: GrpcCall, asked: Any) -> None:
        self._allowed(asked)
        self._keeper.load(asked.model_name, _then(call, "RepositoryModelLoadResponse"))

    def _unload(self, call: GrpcCall, asked: Any) -> None:
        self._allowed(asked)
        self._keeper.unload(asked.model_name, _then(call, "RepositoryModelUnloadResponse"))

    def _allowed(self, asked: Any) -> None:
        if not self._control:
            raise NotNow("models cannot be changed by callers: start the server with --allow_model_control")
        _one_repository(asked)
        for name in asked.parameters:
            if name != "unload_dependents":
                raise BadRequest(f"parameter {name!r} is not offered by this server")


def _then(call: GrpcCall, answer: str) -> Done:
    def done(error: ServingError | None) -> None:
        if error is not None:
            call.fail(error)
        else:
            reply(call, _made(answer))

    return done


def _one_repository(asked: Any) -> None:
    if asked.repository_name:
        raise ModelNotFound(f"there is no repository {asked.repository_name!r}; the only one has no name")


def _made(answer: str, /, **fields: Any) -> Any:
    return message(f"inference.{answer}")(**fields)


def _describe(signature: Signature, made: Any) -> None:
    for specs, told in ((signature.inputs, made.inputs), (signature.outputs, made.outputs)):
        for spec in specs:
            told.add(name=spec.name, datatype=spec.dtype.oip or spec.dtype.tensorflow, shape=spec.shape or ())
