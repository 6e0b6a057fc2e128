"""``/ping`` and ``/invocations``: what MLflow's scoring server and SageMaker's containers answer.

https://mlflow.org/docs/latest/ml/deployment/deploy-model-locally and
https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-inference-code.html
"""

from typing import Any

from cloud_ml.net.http1.calls import TEXT, HttpCall
from cloud_ml.net.http1.heads import Head
from cloud_ml.serving.codecs.json_documents import document
from cloud_ml.serving.errors import BadRequest, ModelNotFound, Unsupported
from cloud_ml.serving.loaded import LoadedVersion
from cloud_ml.serving.rest import dataframes
from cloud_ml.serving.rest.predict import RestPlan, Tensors, by_columns, by_rows
from cloud_ml.serving.rest.service import Answer
from cloud_ml.serving.signatures import Signature
from cloud_ml.serving.table import ModelTable
from cloud_ml.serving.versions.version_manager import VersionManager

_FORMS = ("dataframe_split", "dataframe_records", "instances", "inputs")
_KEYS = tuple(f'"{name}"'.encode() for name in (*_FORMS, "columns", "data", "params"))
TARGET_MODEL = "x-amzn-sagemaker-target-model"
"""Names the model in a request to a server of several."""


class InvocationsDoor:
    """Predictions of the only model, or of the one that a request names."""

    def __init__(self, table: ModelTable, manager: VersionManager) -> None:
        self._table = table
        self._manager = manager

    def route(self, method: str, path: str, head: Head) -> Answer | None:
        """See ``rest.service.Door``."""
        if method == "GET" and path in ("/ping", "/health"):
            return self._ping
        if method != "POST" or path != "/invocations":
            return None
        kind, *parameters = (
            part.strip() for part in head.fields.get("content-type", "").lower().split(";")
        )
        name = head.fields.get(TARGET_MODEL, "")
        if kind in ("application/json", ""):
            return _JsonInvocation(self._table, name)
        if kind == "text/csv":
            return _CsvInvocation(self._table, name, header="header=absent" not in parameters)
        raise BadRequest(f"content-type is {kind[:50]!r}; application/json and text/csv are read")

    def _ping(self, call: HttpCall, _body: bytes) -> None:
        unready = self._manager.unready
        if unready:
            call.refuse(503, f"not every model answers: {', '.join(unready)}")
        else:
            call.reply(200, TEXT, b"\n")


class _JsonInvocation:
    """A body with one of ``dataframe_split``, ``dataframe_records``, ``instances`` and
    ``inputs``.
    """

    def __init__(self, table: ModelTable, name: str) -> None:
        self._table = table
        self._name = name

    def __call__(self, call: HttpCall, body: bytes) -> None:
        fields = document(body, *_KEYS)
        forms = [form for form in _FORMS if form in fields]
        if len(forms) != 1:
            raise BadRequest(
                f"the body has {' and '.join(forms) or 'none'} of {', '.join(_FORMS)}; it takes one"
            )
        unknown = [key for key in fields if key not in (*_FORMS, "params")]
        if unknown:
            raise BadRequest(
                f"the body has {unknown[0]!r}; allowed: {', '.join(_FORMS)} and params"
            )
        version = _version(self._table, self._name)
        signature = version.signature(_signature_name(fields.get("params")))
        _submit(call, version, signature, _tensors(signature, forms[0], fields[forms[0]], body))


class _CsvInvocation:
    """A body of lines."""

    def __init__(self, table: ModelTable, name: str, *, header: bool) -> None:
        self._table = table
        self._name = name
        self._header = header

    def __call__(self, call: HttpCall, body: bytes) -> None:
        try:
            text = body.decode()
        except UnicodeDecodeError as error:
            raise BadRequest(f"the body is not valid UTF-8: {error}") from error
        version = _version(self._table, self._name)
        signature = version.signature("")
        table = dataframes.from_csv(text, header=self._header)
        named = dataframes.tensors(table, signature, texts=True)
        _submit(call, version, signature, by_columns(signature, named, b"{}"))


def _tensors(signature: Signature, form: str, value: Any, body: bytes) -> Tensors:
    if form == "instances":
        return by_rows(signature, value, body)
    if form == "inputs":
        return by_columns(signature, value, body)
    table = (dataframes.from_split if form == "dataframe_split" else dataframes.from_records)(value)
    return by_columns(signature, dataframes.tensors(table, signature, texts=False), b"{}")


def _submit(call: HttpCall, version: LoadedVersion, signature: Signature, tensors: Tensors) -> None:
    """Predict, and answer ``{"predictions": …}`` by rows whatever the request had."""
    RestPlan(version, signature, rows=True).submit(call, *tensors)


def _version(table: ModelTable, name: str) -> LoadedVersion:
    if name:
        return table.find(name)
    names = sorted(table.models)
    if len(names) == 1:
        return table.find(names[0])
    if not names:
        raise ModelNotFound("no model is served here")
    raise BadRequest(
        f"the server has several models: name one of {', '.join(names)[:1000]} by {TARGET_MODEL}"
    )


def _signature_name(params: Any) -> str:
    """The signature that ``params`` name; nothing else can be set."""
    if params is None:
        return ""
    if type(params) is not dict:
        raise BadRequest("'params' is not an object")
    unknown = [name for name in params if name != "signature_name"]
    if unknown:
        raise Unsupported(f"params has {unknown[0]!r}; only signature_name can be set")
    name = params.get("signature_name", "")
    if type(name) is not str:
        raise BadRequest("params.signature_name is no string")
    return name
