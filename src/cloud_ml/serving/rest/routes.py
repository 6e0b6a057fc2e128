"""The paths below ``/v1``."""

import re

from cloud_ml.net.http1.heads import Head
from cloud_ml.serving.errors import BadRequest
from cloud_ml.serving.rest.about import Metadata, Status
from cloud_ml.serving.rest.infer_examples import InferExamples
from cloud_ml.serving.rest.predict import Predict
from cloud_ml.serving.rest.service import Answer, decode_part
from cloud_ml.serving.signatures import CLASSIFY, REGRESS
from cloud_ml.serving.table import Choice, ModelTable
from cloud_ml.serving.versions.version_manager import VersionManager

_MODEL = r"/v1/models/([^/:]+)(?:/versions/(\d{1,19})|/labels/([^/:]+))?"
_CALL = re.compile(_MODEL + ":(classify|regress|predict)", re.IGNORECASE)
_LOOK = re.compile(_MODEL + "(/metadata)?", re.IGNORECASE)


class RestRoutes:
    """TensorFlow Serving's interface over the models of a table."""

    def __init__(self, table: ModelTable, manager: VersionManager) -> None:
        self._table = table
        self._manager = manager

    def route(self, method: str, path: str, head: Head) -> Answer | None:
        """See ``rest.service.Door``."""
        # TensorFlow Serving does not distinguish cases in these paths either.
        if path[:4].lower() != "/v1/":
            return None
        found = (_CALL if method == "POST" else _LOOK).fullmatch(path)
        if found is None:
            raise BadRequest(f"Malformed request: {head.method} {path[:200]}")
        name, number, label, verb = found.groups()
        choice = Choice(
            decode_part(name),
            int(number) if number else None,
            decode_part(label) if label else None,
        )
        if verb is None:
            return Status(self._table, self._manager, choice)
        if verb == "/metadata":
            return Metadata(self._table, choice)
        if verb.lower() == "predict":
            return Predict(self._table, choice)
        return InferExamples(
            self._table, choice, CLASSIFY if verb.lower() == "classify" else REGRESS
        )
