"""A program that turns a session bundle of TensorFlow 1 into a SavedModel that gives the same
answers.

Run as ``python -m cloud_ml.serving.runtimes.tensorflow.unbundle FOLDER OUT``. Signatures become
what TensorFlow Serving made of them: the default one, a regression or a classification, is
``serving_default``; the named halves ``inputs`` and ``outputs`` are a prediction of that name, or
``serving_default_from_named`` beside a default one. Other named regressions and classifications
keep their names.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from cloud_ml.serving.protos import message
from cloud_ml.serving.runtimes.base import DEFAULT_SIGNATURE
from cloud_ml.serving.runtimes.tensorflow import children
from cloud_ml.serving.runtimes.tensorflow.described import SERVE
from cloud_ml.serving.signatures import CLASSIFY, PREDICT, REGRESS

META_GRAPH = "export.meta"
SAVED_MODEL = "saved"
_CHECKPOINT = "export"
_SHARDS = "export-?????-of-?????"
_ASSETS = "assets"


class Unfit(Exception):
    """It is no session bundle that can be served; the reason is the message."""


@dataclass
class Called:
    """A way to call the graph: names of tensors by what callers call them."""

    method: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str] = field(default_factory=dict)


def main() -> None:
    """Convert and write down."""
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        names = convert(folder, out / SAVED_MODEL)
    except Unfit as reason:
        children.tell(out, fit=False, why=str(reason))
    except Exception as error:
        children.tell(
            out, fit=False, why=f"TensorFlow refuses it: {type(error).__name__}: {error}"[:2000]
        )
    else:
        children.tell(out, fit=True, why=f"a SavedModel with {', '.join(names)} is made of it")


def convert(folder: Path, out: Path) -> list[str]:
    """Write the SavedModel; returns the names of its signatures.

    Raises:
        Unfit: what is missing in the bundle.
    """
    import tensorflow as tf  # noqa: PLC0415 - this program is for it

    v1 = tf.compat.v1
    v1.disable_v2_behavior()  # variables and control flow are those of then
    graph = v1.MetaGraphDef()
    try:
        graph.ParseFromString((folder / META_GRAPH).read_bytes())
    except DecodeError as error:
        raise Unfit(f"{META_GRAPH} cannot be read: {error}") from error
    ways = signatures(graph)
    for part in _messages(graph, "serving_graph", v1.GraphDef):
        graph.graph_def.CopyFrom(part)
    assets = _find_assets(graph, folder / _ASSETS, tf.make_tensor_proto)
    for key in [
        key
        for key in graph.collection_def
        if key.startswith("serving_") and key != "serving_init_op"
    ]:
        del graph.collection_def[key]
    with tf.Graph().as_default() as inside, v1.Session(graph=inside) as session:
        saver = v1.train.import_meta_graph(graph, clear_devices=True)
        if saver is not None and (checkpoint := _checkpoint(folder)):
            saver.restore(session, checkpoint)
        builder = v1.saved_model.Builder(str(out))
        builder.add_meta_graph_and_variables(
            session,
            [SERVE],
            {name: _definition(inside, way, v1) for name, way in ways.items()},
            assets_collection=[inside.get_tensor_by_name(name) for name in assets] or None,
            main_op=_first_step(inside, v1),
            clear_devices=True,
            saver=_saver_of_values(session, v1),
        )
        builder.save()
    return sorted(ways)


def signatures(graph: Any) -> dict[str, Called]:
    """What the graph's collection says of how it is called.

    Raises:
        Unfit: where it says nothing that could be called.
    """
    found = _messages(graph, "serving_signatures", message("tensorflow.serving.Signatures"))
    stored = next(found, None)
    if stored is None:
        raise Unfit(
            f"{META_GRAPH} has no collection serving_signatures: it was not written by "
            "session_bundle.exporter"
        )
    named = dict(stored.named_signatures)
    made = {name: way for name, each in named.items() if (way := _single(each)) is not None}
    default = _single(stored.default_signature)
    halves = [_halves(named.get(side)) for side in ("inputs", "outputs")]
    if all(halves):
        name = DEFAULT_SIGNATURE if default is None else f"{DEFAULT_SIGNATURE}_from_named"
        made[name] = Called(PREDICT, *halves)
    if default is not None:
        made[DEFAULT_SIGNATURE] = default
    if not made:
        there = ", ".join(repr(name) for name in sorted(named)) or "none"
        raise Unfit(
            "it has no signature that can be called: a default regression or classification, or "
            f"generic ones named 'inputs' and 'outputs'; named ones are: {there}"
        )
    return made


def _single(signature: Any) -> Called | None:
    """A signature that is whole by itself."""
    kind = signature.WhichOneof("type")
    if kind == "regression_signature":
        one = signature.regression_signature
        sides, method = {"outputs": one.output.tensor_name}, REGRESS
    elif kind == "classification_signature":
        one = signature.classification_signature
        sides, method = (
            {"classes": one.classes.tensor_name, "scores": one.scores.tensor_name},
            CLASSIFY,
        )
    else:
        return None
    outputs = {key: name for key, name in sides.items() if name}
    return (
        Called(method, {"inputs": one.input.tensor_name}, outputs)
        if outputs and one.input.tensor_name
        else None
    )


def _halves(signature: Any) -> dict[str, str]:
    if signature is None or signature.WhichOneof("type") != "generic_signature":
        return {}
    return {key: bound.tensor_name for key, bound in signature.generic_signature.map.items()}


def _messages(graph: Any, collection: str, kind: Any) -> Iterator[Any]:
    if collection in graph.collection_def:
        for packed in graph.collection_def[collection].any_list.value:
            try:
                yield kind.FromString(packed.value)
            except DecodeError as error:
                raise Unfit(
                    f"collection {collection} of {META_GRAPH} cannot be read: {error}"
                ) from error


def _find_assets(graph: Any, folder: Path, tensor: Any) -> list[str]:
    """Have the constants that name assets name the files that lie here; the names of their
    tensors.
    """
    nodes = {node.name: node for node in graph.graph_def.node}
    made = []
    for asset in _messages(graph, "serving_assets", message("tensorflow.serving.AssetFile")):
        name, file = asset.tensor_binding.tensor_name, folder / asset.filename
        node = nodes.get(name.partition(":")[0])
        if node is None or node.op != "Const":
            raise Unfit(f"the asset {asset.filename!r} belongs to {name!r}, which is no constant")
        if not file.resolve().is_relative_to(folder.resolve()) or not file.is_file():
            raise Unfit(f"the asset {asset.filename!r} is missing in {_ASSETS}/")
        node.attr["value"].tensor.CopyFrom(tensor(str(file)))
        made.append(name)
    return made


def _checkpoint(folder: Path) -> str:
    """Where the values lie, as a saver wants it told; nothing for a graph without variables."""
    if (folder / f"{_CHECKPOINT}.index").is_file() or (folder / _CHECKPOINT).is_file():
        return str(folder / _CHECKPOINT)
    return str(folder / _SHARDS) if any(folder.glob(_SHARDS)) else ""


def _saver_of_values(session: Any, v1: Any) -> Any:
    """Saves variables that have a value: what a trainer keeps beside its model may have none."""
    missing = {
        name.decode()
        for name in session.run(v1.report_uninitialized_variables(v1.global_variables()))
    }
    valued = [one for one in v1.global_variables() if one.op.name not in missing]
    return v1.train.Saver(valued, sharded=True, allow_empty=True)


def _first_step(graph: Any, v1: Any) -> Any:
    """What is run once after loading: what the exporter was given for it, and nothing else that
    the graph knows.
    """
    return v1.group(*graph.get_collection("serving_init_op"))


def _definition(graph: Any, way: Called, v1: Any) -> Any:
    def side(names: Mapping[str, str]) -> dict[str, Any]:
        try:
            return {
                key: v1.saved_model.build_tensor_info(graph.get_tensor_by_name(name))
                for key, name in names.items()
            }
        except (KeyError, ValueError) as error:
            raise Unfit(f"a signature names a tensor that the graph lacks: {error}") from error

    return v1.saved_model.build_signature_def(side(way.inputs), side(way.outputs), way.method)


if __name__ == "__main__":
    main()
