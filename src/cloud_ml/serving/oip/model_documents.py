"""What the Open Inference Protocol tells of models: one document each, for HTTP and gRPC alike."""

from collections.abc import Iterable
from typing import Any

from cloud_ml.serving.loaded import LoadedVersion
from cloud_ml.serving.runtimes.base import DEFAULT_SIGNATURE
from cloud_ml.serving.signatures import Signature, TensorSpec
from cloud_ml.serving.versions.decide import STATES, Phase
from cloud_ml.serving.versions.version_manager import VersionManager

EXTENSIONS = ("model_configuration", "model_repository", "statistics")
"""Triton's names for what HTTP and gRPC have beyond the protocol."""

Document = dict[str, Any]
"""Fields by their names in the protocol's messages."""


def default_signature(version: LoadedVersion) -> Signature:
    """The signature that is described where the protocol has room for one only."""
    signatures = version.model.signatures
    return signatures.get(DEFAULT_SIGNATURE) or next(iter(signatures.values()))


def model_metadata(version: LoadedVersion, ready: Iterable[int]) -> Document:
    """``ModelMetadataResponse``; ``ready`` are the versions of the model that answer."""
    signature = default_signature(version)
    return {
        "name": version.name,
        "versions": [str(number) for number in sorted(ready)],
        "platform": version.platform,
        "inputs": [_tensor_metadata(spec) for spec in signature.inputs],
        "outputs": [_tensor_metadata(spec) for spec in signature.listed_outputs],
        "parameters": batching_parameters(version),
    }


def batching_parameters(version: LoadedVersion) -> dict[str, str | bool]:
    """What was decided about batching calls, such as ``batching.serving_default.enabled``."""
    return {
        f"batching.{signature.name}.{key}": value
        for signature in version.model.signatures.values()
        if signature.batching is not None
        for key, value in signature.batching.details.items()
    }


def _tensor_metadata(spec: TensorSpec) -> Document:
    return {"name": spec.name, "datatype": spec.dtype.oip or str(spec.dtype), "shape": _shape(spec)}


def _shape(spec: TensorSpec) -> list[int]:
    """-1 for an open size; the protocol has no word for an open rank."""
    return [-1] if spec.shape is None else list(spec.shape)


def model_config(version: LoadedVersion) -> Document:
    """Triton's ``ModelConfig``. With batches, ``dims`` have no first dimension."""
    signature = default_signature(version)
    return {
        "name": version.name,
        "platform": version.platform,
        "backend": "cloud-ml",
        "max_batch_size": version.max_batch_rows if signature.batched else 0,
        "input": [_tensor_config(spec, signature) for spec in signature.inputs],
        "output": [_tensor_config(spec, signature) for spec in signature.listed_outputs],
    }


def _tensor_config(spec: TensorSpec, signature: Signature) -> Document:
    datatype = {"BYTES": "STRING", None: "INVALID"}.get(spec.dtype.oip, spec.dtype.oip)
    return {
        "name": spec.name,
        "data_type": f"TYPE_{datatype}",
        "dims": _shape(spec)[signature.batched :],
    }


def repository_index(manager: VersionManager, *, only_ready: bool) -> list[Document]:
    """The entries of ``RepositoryIndexResponse``: every version and its state."""
    entries: list[Document] = []
    for name in manager.names:
        statuses = manager.statuses(name)
        entries += [
            {
                "name": name,
                "version": str(each.number),
                "state": STATES[each.phase],
                "reason": each.message,
            }
            for each in statuses
            if each.phase is Phase.AVAILABLE or not only_ready
        ]
        if not statuses and not only_ready:
            entries.append({"name": name, "state": "UNAVAILABLE", "reason": manager.why_not(name)})
    return entries
