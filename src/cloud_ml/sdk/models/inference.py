"""What both faces know of calls to models: the token, the address, what refusals mean, and data
files.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from cloud_ml import errors
from cloud_ml.auth.tokens import make_token
from cloud_ml.models.services.service import Service
from cloud_ml.sdk.config import Credentials, TokenCredentials, check_encrypted
from cloud_ml.sdk.endpoint import Endpoint
from cloud_ml.sdk.failures import NobodyThere
from cloud_ml.sdk.models.arrays import SupportsArray
from cloud_ml.sdk.models.tensors import type_named
from cloud_ml.sdk.signing import key_of

_REQUESTS = frozenset({"instances", "inputs", "dataframe_split", "dataframe_records"})
_OPTIONS = frozenset({"parameters", "params"})
"""What Vertex AI and MLflow have beside rows."""
ADDRESSES_HINT = "See the addresses of model services: cloudml models list"
TOKEN_S = 900
"""How long a token is good that is made for one call."""

_BY_STATUS: Mapping[int, type[errors.CloudMlError]] = {
    400: errors.InvalidRequest,
    401: errors.Unauthenticated,
    403: errors.Forbidden,
    404: errors.NotFound,
    413: errors.TooLarge,
    429: errors.TooMany,
    502: errors.Unavailable,
    503: errors.Unavailable,
    504: errors.Unavailable,
}


def token_for(
    credentials: Credentials | TokenCredentials, seconds: float = TOKEN_S, *, service: str = ""
) -> str:
    """A token that opens the organisation's services for so long, or only ``service``
    (``name/version``).

    Raises:
        InvalidRequest: The caller has an access token and no key to make one with.
    """
    key = key_of(
        credentials,
        "a token for calls of models",
        "Send the access token itself, or create one: cloudml token create --scope "
        f"models:predict:{service or 'NAME'}",
    )
    expires = datetime.now(UTC) + timedelta(seconds=seconds)
    return make_token(key.access_key, key.secret_key, expires, service=service)


def authorization(
    credentials: Credentials | TokenCredentials, endpoint: Endpoint
) -> dict[str, str]:
    """The header of one call. A key makes a token for it; an access token is sent itself.

    Raises:
        InvalidRequest: The access token would travel unencrypted.
    """
    if isinstance(credentials, TokenCredentials):
        check_encrypted(endpoint)
        return {"Authorization": f"Bearer {credentials.token}"}
    return {"Authorization": f"Bearer {token_for(credentials)}"}


def release_header(release: str | None) -> dict[str, str]:
    """The header that names the release which is to answer.

    Raises:
        InvalidRequest: It is no word.
    """
    if release is None:
        return {}
    if not release.isascii() or not release.isalnum():
        raise errors.InvalidRequest(
            f"release is {release!r}",
            field="release",
            value=release,
            allowed="stable, candidate, or a number",
        )
    return {"cloudml-release": release}


def check_address(service: Service) -> None:
    """Refuse to ask a service that cannot be reached.

    Raises:
        Unavailable: It has no address.
    """
    if not service.address:
        why = f": {service.message}" if service.message else ""
        raise errors.Unavailable(
            f"{service.name} {service.version} has no address; it is {service.phase}{why}",
            field="model_name", value=service.name,
            hint=f"Look at it: cloudml models describe {service.name} {service.version}",
        )  # fmt: skip


@contextmanager
def address_hint() -> Iterator[None]:
    """Name what helps where nothing listens at the address of a model."""
    try:
        yield
    except NobodyThere as error:
        error.hint = ADDRESSES_HINT
        raise


def not_a_model_service(endpoint: Endpoint) -> errors.TransportError:
    """The error where the address of the server was given for that of a model service."""
    return errors.TransportError(
        f"{endpoint} is the server and not a model service", hint=ADDRESSES_HINT
    )


def by_name(inputs: Mapping[str, Any] | list[Any] | SupportsArray) -> Mapping[str, Any]:
    """Inputs in columns.

    Raises:
        InvalidRequest: They are rows, which only HTTP takes.
    """
    if not isinstance(inputs, Mapping):
        raise errors.InvalidRequest(
            "rows are asked over HTTP only", field="inputs", allowed='columns: {"X": [[10.0]]}'
        )
    return inputs


def are_named(outputs: Any) -> bool:
    """Whether REST has told outputs by name: it does where there are several; one stands alone,
    bytes as an object.
    """
    return isinstance(outputs, dict) and set(outputs) != {"b64"}


def input_types(metadata: Any, signature: str | None) -> dict[str, str]:
    """The inputs of a signature and their types, from the metadata that REST tells; empty if it
    does not tell them. A type that we cannot send is empty.
    """
    try:
        inputs = metadata["metadata"]["signature_def"]["signature_def"][
            signature or "serving_default"
        ]["inputs"]
        return {name: _type_name(facts["dtype"]) for name, facts in inputs.items()}
    except (LookupError, TypeError, AttributeError):
        return {}


def trained_columns(metadata: Any, signature: str | None) -> tuple[str, ...] | None:
    """The columns that the only input of a signature had in training; ``None`` if it had none.
    Empty if they are too many to be told.
    """
    try:
        by_input = metadata["metadata"]["columns"][signature or "serving_default"]
        (columns,) = by_input.values()
        return tuple(map(str, columns))
    except (LookupError, TypeError, AttributeError, ValueError):
        return None


def _type_name(word: str) -> str:
    try:
        return type_named(word, "dtype")
    except errors.InvalidRequest:
        return ""


def only_output(metadata: Any, signature: str | None) -> str:
    """The name of the output of a signature that answers one, from the metadata that REST tells.

    It is the first: outputs that are answered only on request, such as the alias ``output``, are
    listed after it.

    Raises:
        TransportError: They are not of such a model.
    """
    try:
        outputs = metadata["metadata"]["signature_def"]["signature_def"][
            signature or "serving_default"
        ]["outputs"]
        name = next(iter(outputs.keys()))
    except (LookupError, TypeError, AttributeError, StopIteration):
        raise errors.TransportError(
            "the model answers one output, and its metadata does not tell of one"
        ) from None
    return str(name)


def refusal_of(status: int, body: bytes) -> errors.CloudMlError | None:
    """The refusal of a model server or of what stands before it; ``None`` if it is none of
    theirs.
    """
    try:
        document = json.loads(body)
        message = document["error"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    if not isinstance(message, str):
        return None
    return _BY_STATUS.get(status, errors.RequestError)(message)


@dataclass(frozen=True)
class Table:
    """Rows under the names of their columns. Whether a model takes them as columns by name or as
    rows, its inputs say.
    """

    columns: tuple[str, ...]
    rows: list[Any]

    def for_inputs(
        self, names: Collection[str], trained: Sequence[str] | None = None
    ) -> dict[str, Any] | list[Any]:
        """The table for a model with inputs of these names; rows for one with a single tensor.

        The columns of rows are in the order of ``trained`` (see ``trained_columns``); in their own
        where the training had none.

        Raises:
            InvalidRequest: The columns are not those of the training, or cannot be compared.
        """
        # One of several features may be called like the input.
        are_features = len(self.columns) > 1 and set(self.columns) == set(trained or ())
        if len(names) == 1 and (are_features or not set(self.columns) & set(names)):
            return self.rows if trained is None else self._rows_as_trained(trained)
        return {
            name: [row[number] for row in self.rows] for number, name in enumerate(self.columns)
        }

    def _rows_as_trained(self, trained: Sequence[str]) -> list[Any]:
        # The rule is that of the model server, which has it for MLflow's requests; a test compares.
        if not trained:
            raise errors.InvalidRequest(
                "the model has too many columns to tell them all, so these cannot be put in order",
                field="data",
                hint="Send the table as dataframe_split to /invocations, or rows in the order of "
                "the training.",
            )
        if self.columns == tuple(map(str, range(len(trained)))):
            return self.rows  # numbers for names tell an order only
        known = set(trained)
        places = {  # LightGBM stores names without spaces
            name if name in known else name.replace(" ", "_"): place
            for place, name in enumerate(self.columns)
        }
        missing = [name for name in trained if name not in places]
        if missing or len(self.columns) != len(trained):
            raise errors.InvalidRequest(
                f"the columns are {', '.join(self.columns)[:500]}; the model was trained with the "
                f"columns {', '.join(trained)[:500]}",
                field="data",
                allowed="the columns of the training, in any order",
            )
        order = [places[name] for name in trained]
        return [[row[place] for place in order] for row in self.rows]


@dataclass(frozen=True)
class ModelInputs:
    """What a data file asks of a model.

    ``values`` are columns by name, a table, or rows, which only HTTP takes. ``types`` are those
    that the file names, by input. ``signature`` is empty where the file names none.
    """

    values: dict[str, Any] | list[Any] | Table
    types: dict[str, str] = field(default_factory=dict)
    signature: str = ""


def read_inputs(document: Any) -> ModelInputs:
    """The inputs in a data file: columns by name, rows, or a request as other servers take it.

    Such requests are ``instances`` and ``inputs`` of TensorFlow Serving, and ``dataframe_split``
    and ``dataframe_records`` of MLflow.

    Raises:
        InvalidRequest: It is none of these.
    """
    if isinstance(document, list):
        return ModelInputs(document)
    keys = set(document) - {"signature_name"} if isinstance(document, dict) else set()
    if len(keys) == 2 and (options := keys & _OPTIONS):
        _check_no_options(document, next(iter(options)))
        keys -= options
    request = next(iter(keys)) if len(keys) == 1 else ""
    if request not in _REQUESTS:
        return ModelInputs(*split_data(document))
    values, signature = document[request], document.get("signature_name", "")
    if request == "dataframe_split":
        values = _table_of(values)
    elif request == "dataframe_records":
        values = _table_of_records(values)
    if not isinstance(signature, str):
        raise errors.InvalidRequest(
            "signature_name is not a text", field="signature_name", value=signature
        )
    if isinstance(values, dict) and request == "inputs":
        return ModelInputs(*split_data(values), signature)
    if not isinstance(values, (list, Table)):
        raise errors.InvalidRequest(
            f"{request} does not hold rows", field=request, allowed="rows such as [[10.0], [20.0]]"
        )
    return ModelInputs(values, signature=signature)


def given_inputs(inputs: Any) -> ModelInputs:
    """The inputs that a program gives: as in a data file, or an array, or a data frame.

    A single column of the name ``inputs`` is taken as that input, since many models have it.

    Raises:
        InvalidRequest: It is a request of another server, and none that it would take.
    """
    if isinstance(inputs, (ModelInputs, Table)):
        return inputs if isinstance(inputs, ModelInputs) else ModelInputs(inputs)
    if isinstance(inputs, Mapping):
        keys = set(inputs) - {"signature_name"} - _OPTIONS
        one = next(iter(keys)) if len(keys) == 1 else ""
        is_request = one in _REQUESTS and (one != "inputs" or isinstance(inputs[one], Mapping))
        return read_inputs(dict(inputs)) if is_request else ModelInputs(dict(inputs))
    names = getattr(inputs, "columns", None)
    if names is not None and hasattr(inputs, "itertuples"):
        rows = [list(row) for row in inputs.itertuples(index=False, name=None)]
        return ModelInputs(Table(tuple(map(str, names)), rows))
    return ModelInputs(inputs)


def _check_no_options(document: Mapping[str, Any], name: str) -> None:
    if document[name]:
        raise errors.InvalidRequest(
            f"{name} is not empty, and models take no parameters", field=name,
            value=document[name], allowed="nothing, or {}",
        )  # fmt: skip


def _table_of(split: Any) -> Table:
    """A table that is told as columns and data, as pandas and MLflow have it."""
    try:
        columns, rows = tuple(split["columns"]), [list(row) for row in split["data"]]
        if all(len(row) == len(columns) for row in rows) and _are_names(columns):
            return Table(columns, rows)
    except (LookupError, TypeError):
        pass
    raise errors.InvalidRequest(
        "dataframe_split does not hold a table", field="dataframe_split",
        allowed='{"columns": ["a", "b"], "data": [[1, 2]]}',
    )  # fmt: skip


def _table_of_records(records: Any) -> Table:
    """A table that is told row by row, each an object with the same keys."""
    if isinstance(records, list) and records and all(isinstance(row, dict) for row in records):
        columns = tuple(records[0])
        if all(row.keys() == records[0].keys() for row in records):
            return Table(columns, [[row[name] for name in columns] for row in records])
    raise errors.InvalidRequest(
        "dataframe_records does not hold rows with the same columns", field="dataframe_records",
        allowed='[{"a": 1, "b": 2}, {"a": 3, "b": 4}]',
    )  # fmt: skip


def _are_names(columns: tuple[Any, ...]) -> bool:
    return all(isinstance(name, str) for name in columns) and len(set(columns)) == len(columns)


def split_data(document: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """Values and types of a data file such as ``{"X": [[10.0]], "X_dtype": "float32"}``.

    A key is a type where it ends in ``_dtype`` and its beginning is a key, too.

    Raises:
        InvalidRequest: It is no object, or a type is no word.
    """
    allowed = 'an object such as {"X": [[10.0]], "X_dtype": "float32"}'
    if not isinstance(document, dict):
        raise errors.InvalidRequest("the data is not a JSON object", field="data", allowed=allowed)
    if not document:
        raise errors.InvalidRequest(
            "the data is an empty object; give a value for each input of the model",
            field="data",
            value=document,
            allowed=allowed,
            hint="`cloudml models describe NAME VERSION` shows the inputs.",
        )
    types = {
        name.removesuffix("_dtype"): value
        for name, value in document.items()
        if name.endswith("_dtype") and name.removesuffix("_dtype") in document
    }
    for name, value in types.items():
        if not isinstance(value, str):
            raise errors.InvalidRequest(
                f"{name}_dtype is {value!r}",
                field=f"{name}_dtype",
                value=value,
                allowed="a type such as float32",
            )
    type_fields = {f"{name}_dtype" for name in types}
    return {name: value for name, value in document.items() if name not in type_fields}, types
