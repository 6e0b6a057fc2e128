"""Where models came from."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from cloud_ml.models.services.model_service import ModelService
from cloud_ml.usecases.models.lineage import Lineage
from support.platform import Served


def test_a_folder_that_only_looks_like_a_number_is_no_version(served: Served) -> None:
    """A superscript is a digit, and no decimal: `int` refused it, and so did every describe."""
    objects = served.platform.objects
    for folder in ("1", "12", "\N{SUPERSCRIPT TWO}", "next"):
        objects.put("cloudml", f"models/m/{folder}/model.onnx", b"bytes")
    service: Any = SimpleNamespace(key=SimpleNamespace(org="default"))
    model = ModelService("m", "v1", "fds://cloudml/models/m")
    assert Lineage(served.store, objects).of(service, model).number == 12
