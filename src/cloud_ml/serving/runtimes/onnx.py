"""ONNX by onnxruntime; also what other formats are converted to."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cloud_ml.serving import dtypes
from cloud_ml.serving.errors import ModelFailed
from cloud_ml.serving.independence import onnx_graph
from cloud_ml.serving.independence.evidence import Evidence, proven
from cloud_ml.serving.runtimes.base import DEFAULT_SIGNATURE, Array, LoadOptions
from cloud_ml.serving.runtimes.load_advice import cannot_load
from cloud_ml.serving.runtimes.strings import as_text
from cloud_ml.serving.signatures import Signature, TensorSpec

_TYPES = {
    "tensor(float)": dtypes.FLOAT,
    "tensor(double)": dtypes.DOUBLE,
    "tensor(int32)": dtypes.INT32,
    "tensor(uint8)": dtypes.UINT8,
    "tensor(int16)": dtypes.INT16,
    "tensor(int8)": dtypes.INT8,
    "tensor(string)": dtypes.STRING,
    "tensor(int64)": dtypes.INT64,
    "tensor(bool)": dtypes.BOOL,
    "tensor(uint16)": dtypes.UINT16,
    "tensor(float16)": dtypes.HALF,
    "tensor(uint32)": dtypes.UINT32,
    "tensor(uint64)": dtypes.UINT64,
}


class OnnxModel:
    """A session for each signature. Inputs and outputs go in and come out in the order of the
    signature.

    Without ``signatures`` there is one source, and it tells of itself. ``inner`` says whether the
    tensors of the model are called by the inner names of the signature or by the names that callers
    know.
    """

    def __init__(
        self,
        sources: Mapping[str, bytes | Path],
        signatures: Mapping[str, Signature] | None = None,
        *,
        inner: bool = True,
    ) -> None:
        sessions = {name: session(source) for name, source in sources.items()}
        self.signatures: Mapping[str, Signature] = signatures or {
            name: _describe_signature(name, each) for name, each in sessions.items()
        }
        self._run = {
            name: (
                sessions[name].run,
                [spec.inner if inner else spec.name for spec in each.inputs],
                [spec.inner if inner else spec.name for spec in each.outputs],
            )
            for name, each in self.signatures.items()
        }

        self.evidence = {
            name: _evidence(sources[name], each, inner=inner)
            for name, each in self.signatures.items()
        }
        self._with_text = {
            each.name
            for each in self.signatures.values()
            if any(spec.dtype is dtypes.STRING for spec in each.inputs)
        }

    def predict(self, signature: Signature, inputs: Sequence[Array]) -> Sequence[Array]:
        run, given, output_names = self._run[signature.name]
        if signature.name in self._with_text:
            inputs = [
                _text(spec, each) for spec, each in zip(signature.inputs, inputs, strict=True)
            ]
        made: Sequence[Array] = run(output_names, dict(zip(given, inputs, strict=True)))
        return made

    def close(self) -> None:
        self._run.clear()


def _evidence(source: bytes | Path, signature: Signature, *, inner: bool) -> Evidence:
    found = "every operator of the graph keeps rows apart"
    return proven("graph", found, lambda: onnx_graph.check(source, signature, inner=inner))


def _text(spec: TensorSpec, array: Array) -> Array:
    """Strings as onnxruntime takes them: of bytes it would take what Python shows of them."""
    if spec.dtype is not dtypes.STRING:
        return array
    return as_text(spec.name, array)


def session(source: bytes | Path) -> Any:
    """A session for a model in bytes or in a file, on one thread: requests are what runs side by
    side.

    Raises:
        ModelFailed: where the model cannot be run.
    """
    import onnxruntime  # noqa: PLC0415 - only where such a model is served

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    # Threads that spin while they wait take processor time from other requests.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(
            source if isinstance(source, bytes) else str(source),
            options,
            providers=["CPUExecutionProvider"],
        )
    except Exception as error:
        if isinstance(source, Path):
            raise cannot_load(source, "onnxruntime", str(error)) from error
        raise ModelFailed(f"onnxruntime cannot load it: {error}"[:2000]) from error


def _describe_signature(name: str, made: Any) -> Signature:
    return Signature(
        name, tuple(map(_spec, made.get_inputs())), tuple(map(_spec, made.get_outputs()))
    )


def _spec(node: Any) -> TensorSpec:
    dtype = _TYPES.get(node.type)
    if dtype is None:
        message = f"{node.name!r} is of type {node.type}, which no protocol here carries"
        if node.type.startswith("seq(map("):  # as skl2onnx makes it of probabilities
            message += "; convert the model with options={'zipmap': False}, so that it is a tensor"
        raise ModelFailed(message)
    shape = tuple(size if isinstance(size, int) and size >= 0 else -1 for size in node.shape)
    return TensorSpec(node.name, dtype, shape, inner=node.name)


class OnnxRuntime:
    """``model.onnx`` in the folder of a version."""

    name = "onnx"
    runs_code = False

    def recognises(self, folder: Path) -> bool:
        return (folder / "model.onnx").is_file()

    def load(self, folder: Path, options: LoadOptions) -> OnnxModel:
        return OnnxModel({DEFAULT_SIGNATURE: folder / "model.onnx"})
