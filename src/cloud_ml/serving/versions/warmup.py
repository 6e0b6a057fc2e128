"""The first runs of a version, before it answers: written-down requests, or made-up ones."""

import logging
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from cloud_ml.serving import dtypes, examples
from cloud_ml.serving.codecs import tensor_proto
from cloud_ml.serving.errors import BadRequest, ModelFailed, ModelNotFound, ServingError
from cloud_ml.serving.protos import message
from cloud_ml.serving.runtimes.base import DEFAULT_SIGNATURE, Array, Model
from cloud_ml.serving.signatures import CLASSIFY, REGRESS, Signature, TensorSpec

RECORDS = "assets.extra/tf_serving_warmup_requests"
"""Where TensorFlow Serving has them: a TFRecord file of ``PredictionLog`` messages."""
DOCUMENTS = ("assets.extra/warmup.json", "warmup.json")
"""The same as JSON: a list of ``{"signature_name": …, "inputs": {name: values}}``."""
MOST = 1000
"""Requests that are run, as in TensorFlow Serving."""
LARGEST = 64 << 20
MOST_SAMPLES = 64
"""Requests that are kept for a look at whether their rows are independent."""

log = logging.getLogger(__name__)

_Run = tuple[Signature, list[Array]]


def warm_up(
    model: Model, folder: Path, samples: list[tuple[str, list[Array]]] | None = None
) -> int:
    """Run what the folder asks for, or else each signature once with zeros. How many runs there
    were.

    The first ``MOST_SAMPLES`` of the written-down requests are put into ``samples``, by signature.

    Raises:
        ModelFailed: where a written-down request cannot be read or does not succeed. A made-up one
            may fail.
    """
    runs = 0
    for name, read in ((RECORDS, _read_records), *((name, _read_documents) for name in DOCUMENTS)):
        if not (folder / name).is_file():
            continue
        try:
            for signature, arrays in read(model.signatures, folder / name):
                model.predict(signature, arrays)
                runs += 1
                if samples is not None and len(samples) < MOST_SAMPLES:
                    samples.append((signature.name, arrays))
        except Exception as error:
            cause = (
                error.message
                if isinstance(error, ServingError)
                else f"{type(error).__name__}: {error}"
            )
            raise ModelFailed(
                f"warm-up request {runs + 1} of {name} failed: {cause}"[:2000]
            ) from error
    return runs or sum(_made_up(model, signature) for signature in model.signatures.values())


def _made_up(model: Model, signature: Signature) -> bool:
    shapes = [_guess(spec) for spec in signature.inputs]
    if not all(shape is not None for shape in shapes):
        return False
    zeros = [
        np.zeros(shape or (), spec.dtype.numpy)
        for shape, spec in zip(shapes, signature.inputs, strict=True)
    ]
    try:
        model.predict(signature, zeros)
    except Exception as error:  # zeros may be no meaningful input
        log.info("a made-up warm-up run of %r failed: %s", signature.name, str(error)[:200])
        return False
    return True


def _guess(spec: TensorSpec) -> tuple[int, ...] | None:
    """One row, where only the number of rows is open."""
    if spec.shape is None or spec.dtype is dtypes.STRING or -1 in spec.shape[1:]:
        return None
    return tuple(1 if size == -1 else size for size in spec.shape)


def _signature(signatures: Mapping[str, Signature], name: str) -> Signature:
    found = signatures.get(name or DEFAULT_SIGNATURE)
    if found is None:
        raise ModelNotFound(f"there is no signature {name or DEFAULT_SIGNATURE!r}")
    return found


def _read_records(signatures: Mapping[str, Signature], path: Path) -> Iterator[_Run]:
    log_type = message("tensorflow.serving.PredictionLog")
    for number, data in enumerate(records(path)):
        if number >= MOST:
            return
        record = log_type.FromString(data)
        kind = record.WhichOneof("log_type")
        if kind == "predict_log":
            request = record.predict_log.request
            signature = _signature(signatures, request.model_spec.signature_name)
            yield signature, tensor_proto.arrays_of(signature, request.inputs)
        elif kind in ("classify_log", "regress_log"):
            yield _of_examples(
                signatures, getattr(record, kind).request, CLASSIFY if kind[0] == "c" else REGRESS
            )
        elif kind == "multi_inference_log":
            request = record.multi_inference_log.request
            serialized = examples.as_tensor(examples.examples_of(request.input))
            for task in request.tasks:
                yield _signature(signatures, task.model_spec.signature_name), [serialized]
        else:
            raise BadRequest(
                "it is of a kind that is not run here; PredictLog, ClassifyLog, RegressLog "
                "and so on are"
            )


def _of_examples(signatures: Mapping[str, Signature], request: Any, method: str) -> _Run:
    signature = _signature(signatures, request.model_spec.signature_name)
    examples.check(signature, method)
    return signature, [examples.as_tensor(examples.examples_of(request.input))]


def _read_documents(signatures: Mapping[str, Signature], path: Path) -> Iterator[_Run]:
    if path.stat().st_size > LARGEST:
        raise BadRequest(f"the file is larger than {LARGEST} bytes")
    content = orjson.loads(path.read_bytes())
    for each in (content if isinstance(content, list) else [content])[:MOST]:
        inputs = each.get("inputs") if isinstance(each, dict) else None
        if not isinstance(inputs, dict):
            raise BadRequest(
                'each request is {"signature_name": "…", "inputs": {"name": [values]}}'
            )
        signature = _signature(signatures, each.get("signature_name", ""))
        signature.check_names(inputs)
        yield signature, _arrays(signature, inputs)


def _arrays(signature: Signature, inputs: Mapping[str, Any]) -> list[Array]:
    made = []
    for spec in signature.inputs:
        try:
            array = np.asarray(inputs[spec.name], spec.dtype.numpy)
        except (TypeError, ValueError) as error:
            raise BadRequest(f"input {spec.name!r} is no {spec.dtype}: {error}") from error
        if spec.dtype is dtypes.STRING:
            array = (
                np.vectorize(tensor_proto.as_bytes, otypes=[object])(array) if array.size else array
            )
        signature.check_tensor(spec, spec.dtype, array.shape)
        made.append(array)
    return made


def records(path: Path) -> Iterator[bytes]:
    """The records of a TFRecord file: length, its checksum, data, its checksum. Lengths are judged,
    not checksums.

    Raises:
        BadRequest: where it ends inside a record or names one that is too large.
    """
    with path.open("rb") as file:
        # 8 bytes of length and 4 of its checksum.
        while head := file.read(12):
            size = struct.unpack("<Q", head[:8])[0] if len(head) == 12 else LARGEST + 1
            if size > LARGEST:
                raise BadRequest("the file is no TFRecord file, or damaged")
            data = file.read(size + 4)
            if len(data) != size + 4:
                raise BadRequest("the file ends inside a record")
            yield data[:size]
