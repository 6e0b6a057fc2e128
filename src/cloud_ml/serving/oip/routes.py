"""The paths below ``/v2``."""

import re
from collections.abc import Callable, Mapping

import orjson

from cloud_ml import __version__
from cloud_ml.net.http1.calls import HttpCall
from cloud_ml.net.http1.heads import Head
from cloud_ml.serving.codecs.json_documents import document
from cloud_ml.serving.errors import BadRequest, NotNow, NotReady, ServingError
from cloud_ml.serving.loaded import LoadedVersion
from cloud_ml.serving.oip import model_documents, statistics
from cloud_ml.serving.oip.infer import Infer
from cloud_ml.serving.oip.model_documents import Document
from cloud_ml.serving.oip.templates import Templates
from cloud_ml.serving.rest.service import Answer, decode_part
from cloud_ml.serving.table import Choice, ModelTable
from cloud_ml.serving.versions.version_manager import Done, VersionManager

_MODEL = re.compile(r"/v2/models/([^/]+)(?:/versions/(\d{1,19}))?(?:/(infer|ready|config|stats))?")
_CHANGE = re.compile(r"/v2/repository/models/([^/]+)/(load|unload)")
EXTENSIONS = ("binary_tensor_data", *model_documents.EXTENSIONS)


class OpenInferenceRoutes:
    """The Open Inference Protocol over the models of a table. ``control`` allows callers to load
    and unload them.
    """

    def __init__(self, table: ModelTable, manager: VersionManager, *, control: bool) -> None:
        self._table = table
        self._manager = manager
        self._control = control
        self._templates = Templates()
        self._plain: dict[tuple[str, str], Answer] = {
            ("GET", "/v2"): self._server,
            ("GET", "/v2/health/live"): self._live,
            ("GET", "/v2/health/ready"): self._ready,
            ("GET", "/v2/models/stats"): _Statistics(table, Choice("")),
            ("POST", "/v2/repository/index"): self._index,
        }

    def route(self, method: str, path: str, head: Head) -> Answer | None:
        """See ``rest.service.Door``."""
        if not path.startswith("/v2"):
            return _alive if path == "/" and method == "GET" else None
        plain = self._plain.get((method, path.rstrip("/")))
        if plain is not None:
            return plain
        found = _MODEL.fullmatch(path)
        if found is None:
            changed = _CHANGE.fullmatch(path) if method == "POST" else None
            if changed is None:
                return None
            if not self._control:
                raise NotNow(
                    "models cannot be changed by callers: start the server with "
                    "--allow_model_control"
                )
            manager = self._manager
            return _Change(
                manager.load if changed[2] == "load" else manager.unload, decode_part(changed[1])
            )
        name, number, verb = found.groups()
        choice = Choice(decode_part(name), int(number) if number else None)
        if verb == "infer":
            length = head.fields.get("inference-header-content-length")
            return Infer(self._table, choice, length, self._templates) if method == "POST" else None
        if method != "GET":
            return None
        if verb == "ready":
            return _ModelReady(self._table, choice)
        if verb == "stats":
            return _Statistics(self._table, choice)
        return _About(self._table, choice, _metadata if verb is None else _config)

    def _server(self, call: HttpCall, _body: bytes) -> None:
        call.json(
            orjson.dumps(
                {"name": "cloudml-serve", "version": __version__, "extensions": EXTENSIONS}
            )
        )

    def _live(self, call: HttpCall, _body: bytes) -> None:
        call.json(b'{"live":true}')

    def _ready(self, call: HttpCall, _body: bytes) -> None:
        unready = self._manager.unready
        if unready:
            why = f"not every model answers: {', '.join(unready)}"
            call.json(orjson.dumps({"ready": False, "error": why}), 503)
        else:
            call.json(b'{"ready":true}')

    def _index(self, call: HttpCall, body: bytes) -> None:
        only_ready = document(body).get("ready", False) is True if body else False
        call.json(
            orjson.dumps(model_documents.repository_index(self._manager, only_ready=only_ready))
        )


def _alive(call: HttpCall, _body: bytes) -> None:
    """What KServe's first protocol asks a server."""
    call.json(b'{"status":"alive"}')


class _Change:
    """Loads a model again, or takes it down."""

    def __init__(self, change: Callable[[str, Done], None], name: str) -> None:
        self._change = change
        self._name = name

    def __call__(self, call: HttpCall, body: bytes) -> None:
        parameters = document(body).get("parameters") or {} if body else {}
        for name in parameters:
            if name != "unload_dependents":
                raise BadRequest(f"parameter {name!r} is not offered by this server")

        def done(error: ServingError | None) -> None:
            if error is not None:
                call.fail(error)
            else:
                call.json(b"")

        self._change(self._name, done)


_Describe = Callable[[LoadedVersion, Mapping[int, LoadedVersion]], Document]
"""A document about a version, given all versions of its model that answer."""


class _About:
    """Answers what is known of a version."""

    def __init__(self, table: ModelTable, choice: Choice, tell: _Describe) -> None:
        self._table = table
        self._choice = choice
        self._tell = tell

    def __call__(self, call: HttpCall, _body: bytes) -> None:
        version = self._table.find(*self._choice)
        call.json(orjson.dumps(self._tell(version, self._table.models[version.name].versions)))


class _Statistics:
    """Answers what was counted for a version, for every version of a model, or for all models."""

    def __init__(self, table: ModelTable, choice: Choice) -> None:
        self._table = table
        self._choice = choice

    def __call__(self, call: HttpCall, _body: bytes) -> None:
        counted = statistics.of_models(self._table, self._choice.name, self._choice.number)
        call.json(orjson.dumps({"model_stats": counted}))


class _ModelReady:
    """Answers whether a version of a model is ready; an unknown model or version is 404."""

    def __init__(self, table: ModelTable, choice: Choice) -> None:
        self._table = table
        self._choice = choice

    def __call__(self, call: HttpCall, _body: bytes) -> None:
        try:
            version = self._table.find(*self._choice)
        except NotReady as error:
            answer = {"name": self._choice.name, "ready": False, "error": error.message}
            call.json(orjson.dumps(answer), error.http)
        else:
            call.json(orjson.dumps({"name": version.name, "ready": True}))


def _metadata(version: LoadedVersion, versions: Mapping[int, LoadedVersion]) -> Document:
    return model_documents.model_metadata(version, versions)


def _config(version: LoadedVersion, _versions: Mapping[int, LoadedVersion]) -> Document:
    return model_documents.model_config(version)
