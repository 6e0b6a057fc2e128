"""Every method that this server has, by path: one table, whatever carries the calls."""

from collections.abc import Mapping
from dataclasses import dataclass

from cloud_ml.serving.call_metrics import Refusals
from cloud_ml.serving.grpc.health import Health
from cloud_ml.serving.grpc.infer import Infer
from cloud_ml.serving.grpc.inference import Inference
from cloud_ml.serving.grpc.messages import methods_of
from cloud_ml.serving.grpc.models import Models
from cloud_ml.serving.grpc.open_inference import SERVICE as OPEN_INFERENCE
from cloud_ml.serving.grpc.open_inference import OpenInference
from cloud_ml.serving.grpc.prediction import Prediction
from cloud_ml.serving.grpc.reflection import Reflection
from cloud_ml.serving.grpc.repository import MLSERVER as MLSERVER_REPOSITORY
from cloud_ml.serving.grpc.repository import Repository
from cloud_ml.serving.grpc.service import Method
from cloud_ml.serving.grpc.stream_infer import StreamInfer
from cloud_ml.serving.grpc.streams import StreamMethod
from cloud_ml.serving.table import ModelTable
from cloud_ml.serving.versions.version_manager import VersionManager

PREDICTION, MODELS, HEALTH = (
    "tensorflow.serving.PredictionService",
    "tensorflow.serving.ModelService",
    "grpc.health.v1.Health",
)
REFLECTION, GENERATIONS = "grpc.reflection", ("v1", "v1alpha")


@dataclass(frozen=True, slots=True)
class Methods:
    """Calls of one message each way, and the others. ``refusals`` counts requests that no model
    saw.
    """

    unary: Mapping[str, Method]
    streams: Mapping[str, StreamMethod]
    refusals: Refusals


def all_methods(
    table: ModelTable, manager: VersionManager, *, control: bool, message_bytes: int = 64 << 20
) -> Methods:
    """The methods of a server.

    ``control`` allows callers to change what it serves; ``message_bytes`` bounds requests on a
    stream of inferences.
    """
    models, inference = Models(table, manager, control=control), Inference(table)
    names = [
        PREDICTION,
        MODELS,
        OPEN_INFERENCE,
        MLSERVER_REPOSITORY,
        HEALTH,
        *(f"{REFLECTION}.{each}.ServerReflection" for each in GENERATIONS),
    ]
    mlserver = Repository(MLSERVER_REPOSITORY.rpartition(".")[0], manager, control=control)
    infer = Infer(table)
    stream_infer = StreamInfer(infer, message_bytes)
    health = Health(manager, frozenset(names))
    unary: dict[str, Method] = {
        f"/{PREDICTION}/Predict": Prediction(table).predict,
        f"/{OPEN_INFERENCE}/ModelInfer": infer.infer,
        **methods_of(PREDICTION, {**inference.handlers, **models.prediction}),
        **methods_of(MODELS, models.service),
        **methods_of(OPEN_INFERENCE, OpenInference(table, manager, control=control).handlers),
        **methods_of(MLSERVER_REPOSITORY, mlserver.handlers),
        **methods_of(HEALTH, health.handlers),
    }
    streams: dict[str, StreamMethod] = {
        f"/{HEALTH}/Watch": health.watch,
        f"/{OPEN_INFERENCE}/ModelStreamInfer": stream_infer.begin,
    }
    for generation in GENERATIONS:
        streams.update(Reflection(generation, sorted(names)).methods())
    return Methods(unary, streams, stream_infer.refusals)
