"""What is told of a model: the states of its versions, and its signatures."""

from typing import Any

import orjson

from cloud_ml.net.http1.calls import HttpCall
from cloud_ml.serving.errors import CODES
from cloud_ml.serving.loaded import LoadedVersion
from cloud_ml.serving.signatures import Signature, TensorSpec
from cloud_ml.serving.table import Choice, ModelTable
from cloud_ml.serving.versions.version_manager import VersionManager

_MOST_CHARACTERS = 65_536
"""Of the columns of all signatures together, in what a model tells of itself."""


class Status:
    """Answers with ``GetModelStatusResponse`` as JSON."""

    def __init__(self, table: ModelTable, manager: VersionManager, choice: Choice) -> None:
        self._table = table
        self._manager = manager
        self._choice = choice

    def __call__(self, call: HttpCall, _body: bytes) -> None:
        """See ``rest.service.Answer``."""
        name, number, label = self._choice
        if label is not None:
            number = self._table.find(name, None, label).number
        states = [
            {
                "version": str(each.number),
                "state": each.phase.name,
                "status": {"error_code": CODES[each.code], "error_message": each.message},
            }
            for each in self._manager.statuses(name, number)
        ]
        call.json(_pretty({"model_version_status": states}))


class Metadata:
    """Answers with ``GetModelMetadataResponse`` as JSON."""

    def __init__(self, table: ModelTable, choice: Choice) -> None:
        self._table = table
        self._choice = choice

    def __call__(self, call: HttpCall, _body: bytes) -> None:
        """See ``rest.service.Answer``."""
        version = self._table.find(*self._choice)
        signatures = {each.name: _signature(each) for each in version.model.signatures.values()}
        columns = columns_of(version)
        call.json(
            _pretty(
                {
                    "model_spec": {
                        "name": version.name,
                        "signature_name": "",
                        "version": str(version.number),
                    },
                    "metadata": {
                        "signature_def": {"signature_def": signatures},
                        "batching": batching_of(version),
                        **({"columns": columns} if columns else {}),
                    },
                }
            )
        )


def columns_of(version: LoadedVersion) -> dict[str, dict[str, tuple[str, ...]]]:
    """The columns that inputs had in training, in their order, by signature and input.

    Those that would make the answer long are left empty: whoever looks whether a replica is ready
    asks for it every few seconds.
    """
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    left = _MOST_CHARACTERS
    for each in version.model.signatures.values():
        for spec in each.inputs:
            if spec.columns:
                left -= sum(map(len, spec.columns))
                found.setdefault(each.name, {})[spec.name] = spec.columns if left >= 0 else ()
    return found


def batching_of(version: LoadedVersion) -> dict[str, Any]:
    """What was decided about batching calls, by signature."""
    signatures = version.model.signatures.values()
    return {each.name: each.batching.details for each in signatures if each.batching is not None}


def _signature(signature: Signature) -> dict[str, Any]:
    return {
        "inputs": {spec.name: _tensor(spec) for spec in signature.inputs},
        "outputs": {spec.name: _tensor(spec) for spec in signature.listed_outputs},
        "method_name": signature.method,
        "defaults": {},
    }


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    dims = [{"size": str(size), "name": ""} for size in spec.shape or ()]
    return {
        "dtype": spec.dtype.tensorflow,
        "tensor_shape": {"dim": dims, "unknown_rank": spec.shape is None},
        "name": spec.inner or spec.name,
    }


def _pretty(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
