"""Tables of rows and columns, as MLflow's and SageMaker's callers send them, to tensors of a
signature.
"""

import csv
import io
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from cloud_ml.serving import dtypes
from cloud_ml.serving.dtypes import DType
from cloud_ml.serving.errors import BadRequest
from cloud_ml.serving.signatures import Signature, TensorSpec

_FLOATS = frozenset({dtypes.FLOAT, dtypes.DOUBLE, dtypes.HALF, dtypes.BFLOAT16})
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_TRUTHS = {"true": True, "false": False, "1": True, "0": False}


class Table(NamedTuple):
    """Cells by rows. ``columns`` are the names of the columns; None where the sender gave none."""

    columns: list[str] | None
    rows: list[list[Any]]


def from_split(value: Any) -> Table:
    """``dataframe_split``: an object of columns and data; an index changes nothing.

    Raises:
        BadRequest: for what is no table.
    """
    if type(value) is not dict or not {"data"} <= set(value) <= {"columns", "data", "index"}:
        raise BadRequest(
            "'dataframe_split' is not an object of 'columns', 'data' and, if wanted, 'index'"
        )
    columns, rows = value.get("columns"), value["data"]
    if columns is not None:
        if type(columns) is not list:
            raise BadRequest("dataframe_split.columns is not a list of names")
        columns = [str(name) for name in columns]
    if type(rows) is not list or not all(type(row) is list for row in rows):
        raise BadRequest("dataframe_split.data is not a list of rows")
    return _check_table(Table(columns, rows), "dataframe_split.data")


def from_records(value: Any) -> Table:
    """``dataframe_records``: a list of objects; what a record lacks is missing, as null is.

    Raises:
        BadRequest: for what is no table.
    """
    if type(value) is not list or not value or not all(type(row) is dict for row in value):
        raise BadRequest("'dataframe_records' is not a list of one object or more")
    columns = list({name: None for row in value for name in row})
    return Table(columns, [[row.get(name) for name in columns] for row in value])


def from_csv(text: str, *, header: bool) -> Table:
    """Lines of values with commas between; ``header`` tells whether the first has the names of the
    columns.

    Raises:
        BadRequest: for what is no table.
    """
    try:
        # `str.splitlines` would also end a row at U+0085, U+2028 and others.
        lines = [line for line in csv.reader(io.StringIO(text, newline=""), strict=True) if line]
    except csv.Error as error:
        raise BadRequest(f"the body is not valid CSV: {error}") from error
    columns = lines.pop(0) if header and lines else None
    if not lines:
        raise BadRequest("the body has no row of values" + (" below its header" if header else ""))
    return _check_table(Table(columns, list(lines)), "the body")


def _check_table(table: Table, where: str) -> Table:
    if table.columns is not None and len(set(table.columns)) != len(table.columns):
        raise BadRequest(f"{where} has a column twice in {table.columns}"[:1000])
    if not table.rows:
        raise BadRequest(f"{where} has no rows")
    width = len(table.rows[0]) if table.columns is None else len(table.columns)
    for place, row in enumerate(table.rows):
        if len(row) != width:
            raise BadRequest(f"{where}[{place}] has {len(row)} values for {width} columns")
    return table


def tensors(table: Table, signature: Signature, *, texts: bool) -> dict[str, list[Any]]:
    """Lists of values by input.

    Columns that are named as the inputs are these. Otherwise, and where they are the columns of the
    training, they are the features of the only input: by name where the model tells the names,
    else in their order. ``texts`` tells that values came as text and are to be read as what the
    input takes.

    Raises:
        BadRequest: where the columns are not what the signature takes.
    """
    names = {spec.name for spec in signature.inputs}
    if (
        table.columns is not None
        and names <= set(table.columns)
        and not _are_features(table.columns, signature)
    ):
        extra = [name for name in table.columns if name not in names]
        if extra:
            raise BadRequest(f"there is no input {extra[0]!r}: {signature}")
        places = {name: place for place, name in enumerate(table.columns)}
        return {
            spec.name: _column(table, places[spec.name], spec, signature, texts=texts)
            for spec in signature.inputs
        }
    if len(signature.inputs) != 1:
        missing = sorted(names - set(table.columns or ()))
        raise BadRequest(f"there is no column {missing[0]!r}: {signature}")
    spec = signature.inputs[0]
    if spec.columns and table.columns is not None:
        table = _as_trained(table, table.columns, spec.columns)
    if spec.shape is not None and len(spec.shape) == 1 and len(table.rows[0]) == 1:
        return {spec.name: _column(table, 0, spec, signature, texts=texts)}
    return {spec.name: [_cells(row, spec, signature, texts=texts) for row in table.rows]}


def _are_features(columns: list[str], signature: Signature) -> bool:
    """Whether they are the columns of the training, one of which may be called like the input."""
    return len(columns) > 1 and any(set(columns) == set(spec.columns) for spec in signature.inputs)


def _as_trained(table: Table, given: list[str], trained: tuple[str, ...]) -> Table:
    """The table with its columns in the order that they had in training. Numbers for names tell an
    order only.

    Raises:
        BadRequest: where names are not those of the training, since values would count for other
            features.
    """
    if given == [str(place) for place in range(len(trained))]:
        return table
    known = set(trained)
    places = {
        name if name in known else name.replace(" ", "_"): place for place, name in enumerate(given)
    }
    found = [places.get(name, -1) for name in trained]  # LightGBM stores names without spaces
    expected = f"the model was trained with the columns {', '.join(trained)}"[:1000]
    if -1 in found:
        raise BadRequest(f"there is no column {trained[found.index(-1)]!r}; {expected}")
    if len(given) != len(found):
        extra = sorted(set(range(len(given))).difference(found))
        raise BadRequest(f"the model does not know the column {given[extra[0]]!r}; {expected}")
    return Table(list(trained), [[row[place] for place in found] for row in table.rows])


def _column(
    table: Table, place: int, spec: TensorSpec, signature: Signature, *, texts: bool
) -> list[Any]:
    """A value for each row; of an input with a second dimension of one value, a list of one."""
    cells = _cells((row[place] for row in table.rows), spec, signature, texts=texts)
    wide = spec.shape is not None and len(spec.shape) == 2
    return [[cell] if type(cell) is not list else cell for cell in cells] if wide else cells


def _cells(
    values: Iterable[Any], spec: TensorSpec, signature: Signature, *, texts: bool
) -> list[Any]:
    """Values as JSON would have them. What is missing is not a number, where the input takes
    such.
    """
    cells = list(values)
    if texts:
        cells = [_read(cell, spec, signature) for cell in cells]
    if spec.dtype in _FLOATS:
        return [float("nan") if cell is None else cell for cell in cells]
    return cells


def _read(text: str, spec: TensorSpec, signature: Signature) -> Any:
    dtype = spec.dtype
    try:
        return _value(text.strip(), dtype) if dtype is not dtypes.STRING else text
    except ValueError as error:
        raise BadRequest(
            f"the value {text[:50]!r} is no {dtype}, which {spec.name!r} takes: {signature}"
        ) from error


def _value(text: str, dtype: DType) -> Any:
    """What a text says.

    Raises:
        ValueError: where it is no value of this type.
    """
    if dtype in _FLOATS:
        # Python's `float` takes underscores between digits.
        if "_" in text:
            raise ValueError(text)
        return float(text) if text else None
    if dtype is dtypes.BOOL:
        if text.lower() not in _TRUTHS:
            raise ValueError(text)
        return _TRUTHS[text.lower()]
    if _INTEGER.fullmatch(text) is None:
        raise ValueError(text)
    return int(text)
