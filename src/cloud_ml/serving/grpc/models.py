"""TensorFlow Serving's ModelService, and GetModelMetadata of its PredictionService."""

from typing import Any

from cloud_ml.serving.errors import BadRequest, ModelNotFound, NotNow, ServingError
from cloud_ml.serving.grpc.calls import GrpcCall
from cloud_ml.serving.grpc.messages import Handler, reply
from cloud_ml.serving.grpc.prediction import find, spec_of
from cloud_ml.serving.loaded import LoadedVersion
from cloud_ml.serving.protos import message
from cloud_ml.serving.signatures import TensorSpec
from cloud_ml.serving.table import ModelTable
from cloud_ml.serving.versions.model_config import from_message
from cloud_ml.serving.versions.version_manager import VersionManager

_SIGNATURE_DEF, _BATCHING = "signature_def", "batching"


class Models:
    """What models there are, and which there shall be.

    ``control`` allows callers to change what is served: whoever may do that makes the server read
    any folder.
    """

    def __init__(self, table: ModelTable, manager: VersionManager, *, control: bool) -> None:
        self._table = table
        self._manager = manager
        self._control = control

    @property
    def prediction(self) -> dict[str, Handler]:
        """Its methods of PredictionService."""
        return {"GetModelMetadata": self._metadata}

    @property
    def service(self) -> dict[str, Handler]:
        """Its methods of ModelService."""
        return {"GetModelStatus": self._status, "HandleReloadConfigRequest": self._reload}

    def _metadata(self, _call: GrpcCall, request: Any) -> Any:
        if not request.metadata_field:
            raise BadRequest(f"metadata_field is empty; {_SIGNATURE_DEF!r} can be asked for")
        for field in request.metadata_field:
            if field not in (_SIGNATURE_DEF, _BATCHING):
                known = f"{_SIGNATURE_DEF!r} and {_BATCHING!r}"
                raise BadRequest(f"metadata_field is {field!r}; {known} can be asked for")
        version = find(self._table, request.model_spec)
        made = message("tensorflow.serving.GetModelMetadataResponse")()
        made.model_spec.MergeFromString(spec_of(version))
        if _SIGNATURE_DEF in request.metadata_field:
            made.metadata[_SIGNATURE_DEF].Pack(_signatures(version), deterministic=True)
        if _BATCHING in request.metadata_field:
            made.metadata[_BATCHING].Pack(_decisions(version), deterministic=True)
        return made

    def _status(self, _call: GrpcCall, request: Any) -> Any:
        spec = request.model_spec
        if not spec.name:
            raise BadRequest("model_spec.name is empty")
        choice = spec.WhichOneof("version_choice")
        number = spec.version.value if choice == "version" else None
        if choice == "version_label":
            model = self._table.models.get(spec.name)
            number = model.labels.get(spec.version_label) if model is not None else None
            if number is None:
                raise ModelNotFound(f"model {spec.name!r} has no label {spec.version_label!r}")
        made = message("tensorflow.serving.GetModelStatusResponse")()
        statuses = self._manager.statuses(spec.name, number)
        if not statuses:
            raise ModelNotFound(
                f"no version of model {spec.name!r} is known: {self._manager.why_not(spec.name)}"
            )
        for status in statuses:
            version = made.model_version_status.add(version=status.number, state=int(status.phase))
            version.status.error_code, version.status.error_message = status.code, status.message
        return made

    def _reload(self, call: GrpcCall, request: Any) -> None:
        if not self._control:
            raise NotNow(
                "models cannot be changed by callers: start the server with --allow_model_control"
            )
        configs = from_message(request.config)

        def done(error: ServingError | None) -> None:
            if error is not None:
                call.fail(error)
            else:
                made = message("tensorflow.serving.ReloadConfigResponse")()
                made.status.error_code = 0
                reply(call, made)

        self._manager.reload(configs, done)


def _signatures(version: LoadedVersion) -> Any:
    signatures = message("tensorflow.serving.SignatureDefMap")()
    for signature in version.model.signatures.values():
        definition = signatures.signature_def[signature.name]
        definition.method_name = signature.method
        for specs, infos in (
            (signature.inputs, definition.inputs),
            (signature.listed_outputs, definition.outputs),
        ):
            for spec in specs:
                _describe(spec, infos[spec.name])
    return signatures


def _decisions(version: LoadedVersion) -> Any:
    """Whether calls of each signature are batched, and why: an object for each signature."""
    made = message("google.protobuf.Struct")()
    for signature in version.model.signatures.values():
        if signature.batching is None:
            continue
        fields = made.fields[signature.name].struct_value.fields
        for key, value in signature.batching.details.items():
            if isinstance(value, bool):
                fields[key].bool_value = value
            else:
                fields[key].string_value = value
    return made


def _describe(spec: TensorSpec, info: Any) -> None:
    info.name, info.dtype = spec.inner or spec.name, spec.dtype.number
    info.tensor_shape.unknown_rank = spec.shape is None
    for size in spec.shape or ():
        info.tensor_shape.dim.add(size=size)
