"""What is refused whatever the operator is."""

from cloud_ml.serving.independence.tensor_info import (
    ROWS,
    NotIndependent,
    TensorInfo,
)


def axis_of(axis: int, rank: int) -> int:
    """The axis counted from the first.

    Raises:
        NotIndependent: where there is no such axis.
    """
    if not -rank <= axis < rank:
        raise NotIndependent(f"there is no axis {axis}")
    return axis % rank


def plain(*infos: TensorInfo) -> None:
    """Refuse values that depend on the number of rows: an answer made of them is another one for
    other callers.
    """
    if any(info.counts_rows for info in infos):
        raise NotIndependent("it computes with the number of rows")


def check_output(name: str, info: TensorInfo) -> None:
    """Refuse an output whose first dimension is not the rows, one by one.

    Raises:
        NotIndependent: with its name.
    """
    plain(info)
    if not info.rows or info.shape is None or info.shape[0] != ROWS:
        raise NotIndependent(f"output {name!r} does not have one entry for each row")
