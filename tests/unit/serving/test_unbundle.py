"""What the signatures of a session bundle become."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cloud_ml.serving.protos import message
from cloud_ml.serving.runtimes.tensorflow.unbundle import Called, Unfit, signatures
from cloud_ml.serving.signatures import CLASSIFY, PREDICT, REGRESS


def graph(proto: Any) -> Any:
    """As much of a ``MetaGraphDef`` as is read."""
    packed = [
        SimpleNamespace(value=proto if isinstance(proto, bytes) else proto.SerializeToString())
    ]
    return SimpleNamespace(
        collection_def={
            "serving_signatures": SimpleNamespace(any_list=SimpleNamespace(value=packed))
        }
    )


def bundle() -> Any:
    return message("tensorflow.serving.Signatures")()


def bind(signature: Any, **names: str) -> None:
    for key, name in names.items():
        signature.generic_signature.map[key].tensor_name = name


def test_halves_are_one_prediction() -> None:
    session_bundle = bundle()
    bind(session_bundle.named_signatures["inputs"], x="x:0")
    bind(session_bundle.named_signatures["outputs"], y="y:0", z="z:0")
    assert signatures(graph(session_bundle)) == {
        "serving_default": Called(PREDICT, {"x": "x:0"}, {"y": "y:0", "z": "z:0"})
    }


def test_a_default_one_goes_first_and_others_keep_their_names() -> None:
    session_bundle = bundle()
    session_bundle.default_signature.classification_signature.input.tensor_name = "x:0"
    session_bundle.default_signature.classification_signature.scores.tensor_name = "y:0"
    session_bundle.named_signatures["price"].regression_signature.input.tensor_name = "x:0"
    session_bundle.named_signatures["price"].regression_signature.output.tensor_name = "p:0"
    bind(session_bundle.named_signatures["inputs"], x="x:0")
    bind(session_bundle.named_signatures["outputs"], y="y:0")
    assert signatures(graph(session_bundle)) == {
        "serving_default": Called(CLASSIFY, {"inputs": "x:0"}, {"scores": "y:0"}),
        "serving_default_from_named": Called(PREDICT, {"x": "x:0"}, {"y": "y:0"}),
        "price": Called(REGRESS, {"inputs": "x:0"}, {"outputs": "p:0"}),
    }


def test_what_cannot_be_called_is_told() -> None:
    session_bundle = bundle()
    bind(session_bundle.named_signatures["bindings"], x="x:0")
    bind(session_bundle.named_signatures["inputs"], x="x:0")
    with pytest.raises(
        Unfit, match=r"no signature that can be called.*named ones are: 'bindings', 'inputs'"
    ):
        signatures(graph(session_bundle))
    with pytest.raises(Unfit, match="has no collection serving_signatures"):
        signatures(SimpleNamespace(collection_def={}))
    with pytest.raises(Unfit, match=r"collection serving_signatures of export.meta cannot be read"):
        signatures(graph(b"\xff"))
