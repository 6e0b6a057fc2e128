"""What a SavedModel takes and gives, read from its file without TensorFlow."""

from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from cloud_ml.serving import dtypes
from cloud_ml.serving.errors import ModelFailed
from cloud_ml.serving.protos import message
from cloud_ml.serving.signatures import PREDICT, Signature, TensorSpec

SERVE = "serve"
"""The tag of the graph that is meant to be served."""
_HIDDEN = "__saved_model"


def signatures(folder: Path) -> dict[str, Signature]:
    """The signatures of the graph that is tagged ``serve``, by name.

    Raises:
        ModelFailed: where the file is damaged or holds no such graph.
    """
    try:
        saved = message("tensorflow.SavedModel").FromString(
            (folder / "saved_model.pb").read_bytes()
        )
    except (OSError, DecodeError) as error:
        raise ModelFailed(f"saved_model.pb cannot be read: {error}") from error
    for graph in saved.meta_graphs:
        if SERVE in graph.meta_info_def.tags:
            return {
                name: _signature(name, each)
                for name, each in sorted(graph.signature_def.items())
                if not name.startswith(_HIDDEN)
            }
    found = "; ".join(", ".join(graph.meta_info_def.tags) for graph in saved.meta_graphs) or "none"
    raise ModelFailed(f"saved_model.pb has no graph with the tag {SERVE!r}; tags: {found}")


def _signature(name: str, proto: Any) -> Signature:
    sides = [
        tuple(_spec(key, side[key]) for key in sorted(side))
        for side in (proto.inputs, proto.outputs)
    ]
    return Signature(name, sides[0], sides[1], proto.method_name or PREDICT)


def _spec(name: str, info: Any) -> TensorSpec:
    dtype = dtypes.BY_NUMBER.get(info.dtype)
    if dtype is None:
        raise ModelFailed(f"tensor {name!r} has dtype {info.dtype}, which no protocol here carries")
    shape = (
        None if info.tensor_shape.unknown_rank else tuple(dim.size for dim in info.tensor_shape.dim)
    )
    return TensorSpec(name, dtype, shape, inner=info.name)
