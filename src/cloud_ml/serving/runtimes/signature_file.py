"""``signature.json``: what a model takes and gives, for formats that do not tell or tell too
little.

``{"serving_default": {"inputs": [{"name": "x", "dtype": "float32", "shape": [-1, 4]}], "outputs": [...]}}``;
the names of the types are numpy's, ``string`` for text and bytes, and -1 is any size. A signature
may also have ``"batching": true`` or ``false``: whether calls of several clients may run together.
Where ``outputs`` are left out, they are found out by a run with zeros (see ``output_discovery``),
for the formats that need this file.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cloud_ml.serving import dtypes
from cloud_ml.serving.errors import ModelFailed
from cloud_ml.serving.independence.evidence import BatchingDecision
from cloud_ml.serving.runtimes.base import DEFAULT_SIGNATURE
from cloud_ml.serving.signatures import Signature, TensorSpec

FILE = "signature.json"


def read(folder: Path) -> dict[str, Signature] | None:
    """The signatures that lie beside a model that tells of itself; None where there is no such
    file.

    Raises:
        ModelFailed: with the place of what is wrong in it, also where a signature has no outputs.
    """
    found = read_inputs(folder)
    if missing := [name for name, each in (found or {}).items() if not each.outputs]:
        raise ModelFailed(f"{FILE}: {missing[0]}: outputs are missing")
    return found


def read_inputs(folder: Path) -> dict[str, Signature] | None:
    """As ``read``, of signatures that may lack outputs.

    Raises:
        ModelFailed: with the place of what is wrong in it.
    """
    try:
        document = json.loads((folder / FILE).read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFailed(f"{FILE} cannot be read: {error}") from error
    return parse(document)


def parse(document: Any) -> dict[str, Signature]:
    """Signatures from such a document.

    Raises:
        ModelFailed: with the place of what is wrong in it.
    """
    if not isinstance(document, Mapping) or not document:
        raise ModelFailed(f"{FILE}: signatures by name are expected")
    if "inputs" in document and set(document) <= {"inputs", "outputs", "batching"}:
        document = {DEFAULT_SIGNATURE: document}
    return {str(name): _signature(str(name), each) for name, each in document.items()}


def _signature(name: str, definition: Any) -> Signature:
    if not isinstance(definition, Mapping) or not {"inputs"} <= set(definition) <= {
        "inputs",
        "outputs",
        "batching",
    }:
        raise ModelFailed(
            f"{FILE}: {name}: inputs, outputs and batching are known, inputs are required"
        )
    inputs = _tensors(f"{name}.inputs", definition["inputs"])
    outputs = _tensors(f"{name}.outputs", definition["outputs"]) if "outputs" in definition else ()
    made, batching = Signature(name, inputs, outputs), definition.get("batching")
    if batching is None:
        return made
    if not isinstance(batching, bool):
        raise ModelFailed(f"{FILE}: {name}.batching is {batching!r}, true or false is expected")
    return made.decided(BatchingDecision(batching, "model", f"{FILE} says so"))


def _tensors(where: str, definitions: Any) -> tuple[TensorSpec, ...]:
    if not isinstance(definitions, list) or not definitions:
        raise ModelFailed(f"{FILE}: {where}: a list of tensors is expected")
    made = tuple(_tensor(f"{where}[{place}]", each) for place, each in enumerate(definitions))
    if len({each.name for each in made}) != len(made):
        raise ModelFailed(f"{FILE}: {where}: a name is there twice")
    return made


def _tensor(where: str, definition: Any) -> TensorSpec:
    if not isinstance(definition, Mapping) or set(definition) != {"name", "dtype", "shape"}:
        raise ModelFailed(f"{FILE}: {where}: name, dtype and shape are expected, nothing else")
    name, shape, dtype = (
        definition["name"],
        definition["shape"],
        dtypes.BY_NAME.get(str(definition["dtype"])),
    )
    if not isinstance(name, str) or not name:
        raise ModelFailed(f"{FILE}: {where}.name is {name!r}, text is expected")
    if dtype is None:
        raise ModelFailed(
            f"{FILE}: {where}.dtype is {definition['dtype']!r}; "
            f"known are {', '.join(dtypes.BY_NAME)}"
        )
    if not isinstance(shape, list) or any(type(size) is not int or size < -1 for size in shape):
        raise ModelFailed(
            f"{FILE}: {where}.shape is {shape!r}, a list of sizes with -1 for any is expected"
        )
    return TensorSpec(name, dtype, tuple(shape), inner=name)


def require(folder: Path, runtime: str, file: str) -> dict[str, Signature]:
    """As ``read``, for a format that tells nothing of itself. ``file`` is the model's.

    Raises:
        ModelFailed: also where the file is missing.
    """
    found = read_inputs(folder)
    if found is None:
        raise ModelFailed(
            f"{file} stores no input signature, as {runtime} never does: put {FILE} beside it, "
            f"which this writes: cloudml models signature {file} --input x:float32[?,8] -o {FILE}"
        )
    return found
