"""The operators of ``ai.onnx.ml``: models of classic machine learning, on tables of features."""

from cloud_ml.serving.independence import operators as op
from cloud_ml.serving.independence.onnx_file import Node
from cloud_ml.serving.independence.onnx_inputs import Inputs, first, given_inputs, require_input
from cloud_ml.serving.independence.tensor_info import UNKNOWN, NotIndependent, TensorInfo, tensor

_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")
"""What may follow the scores. ONNX Runtime puts the results of PROBIT into other rows."""


def table_rows(node: Node, infos: Inputs) -> list[TensorInfo]:
    """Models of classic machine learning: a table of rows and features in, labels and scores
    out.
    """
    if node.attributes.get("post_transform", "NONE") not in _TRANSFORMS:
        raise NotIndependent(
            f"its post_transform {node.attributes['post_transform']!r} is not known to keep "
            "rows apart"
        )
    one = first(infos)
    op.plain(one)
    if not one.rows or one.rank != 2:
        raise NotIndependent("its input is no table of rows and features")
    rows = (one.shape or ())[0]
    return [tensor((rows,)), tensor((rows, UNKNOWN))]


def regressor(node: Node, infos: Inputs) -> TensorInfo:
    """Scores alone."""
    return table_rows(node, infos)[1]


def features(_node: Node, infos: Inputs) -> TensorInfo:
    """FeatureVectorizer: as many features as its attribute says, whatever the inputs have."""
    if any(info.rank != 2 for info in given_inputs(infos)):
        raise NotIndependent("its input is no table of rows and features")
    return op.part(op.concat(given_inputs(infos), 1), 1)


def each_feature(_node: Node, infos: Inputs) -> TensorInfo:
    """Scaler, Imputer: a number for each feature."""
    if first(infos).rank != 2:
        raise NotIndependent("its input is no table of rows and features")
    return op.elementwise([first(infos)])


def normalizer(_node: Node, infos: Inputs) -> TensorInfo:
    """Each row by its own norm."""
    if first(infos).rank != 2:
        raise NotIndependent("its input is no table of rows and features")
    return op.along(first(infos), 1)


def extractor(_node: Node, infos: Inputs) -> TensorInfo:
    """Some of the features, which must not depend on rows."""
    if require_input(infos, 1).rows:
        raise NotIndependent("it takes features that other rows choose")
    return op.part(first(infos), -1)
