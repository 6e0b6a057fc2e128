"""What a model in the object store needs: a framework by the names of its files, and packages by
the classes of its pickle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import NamedTuple

from cloud_ml.controller.programs.pickled_modules import MOST_BYTES, pickled_modules
from cloud_ml.models.common import ObjectUri
from cloud_ml.models.services.model_files import (
    BEGINNING_BYTES,
    TEXT_MODELS,
    begins_as_model,
    named_for_its_format,
)
from cloud_ml.objects.base import ObjectStore

FRAMEWORKS: Mapping[str, str] = {
    "saved_model.pb": "tensorflow",
    "export.meta": "tensorflow",
    "model.keras": "keras",
    "model.tflite": "tensorflow",
    "model.onnx": "python",
    "model.pt2": "pytorch",
    "model.pt": "pytorch",
    "model.skops": "scikit-learn",
    "model.joblib": "scikit-learn",
    "model.pkl": "scikit-learn",
    "model.ubj": "xgboost",
    "model.json": "xgboost",
    "model.txt": "lightgbm",
    "model.py": "python",
}
"""A file in the folder of a version → the framework that its model needs."""

_PICKLE_ENDINGS = (".joblib", ".pkl", ".pickle")
_PICKLED_FRAMEWORKS = ("xgboost", "lightgbm")
"""Frameworks with estimators that are pickled as those of scikit-learn are. They come with
scikit-learn.
"""
_PICKLED_PACKAGES: Mapping[str, str] = {
    "catboost": "catboost",
    "category_encoders": "category-encoders",
    "feature_engine": "feature-engine",
    "imblearn": "imbalanced-learn",
    "lightgbm": "lightgbm",
    "mlxtend": "mlxtend",
    "sklego": "scikit-lego",
    "statsmodels": "statsmodels",
    "xgboost": "xgboost-cpu",
}
"""A module that a pickle names → the package that a replica installs for it."""
_SHOWN = 5
"""So many names of what lies where a model is missing are told."""


class ModelRequirements(NamedTuple):
    """What a replica of a model installs: a framework, and further packages."""

    framework: str
    packages: tuple[str, ...] = ()


def requirements_of(
    objects: ObjectStore, uri: ObjectUri, framework: str | None = None
) -> ModelRequirements | None:
    """What the newest version below a folder requires; None where there is no version of a known
    format. ``framework`` is the one that the service names.

    A folder without numbered ones may hold a model itself, and the URI may be that of one file.
    """
    key = _model_key(objects, uri)
    if key is None:
        return None
    path = PurePosixPath(key)
    usual = FRAMEWORKS[named_for_its_format(path.name) or path.name]
    if path.suffix not in _PICKLE_ENDINGS:
        return ModelRequirements(framework or usual)
    modules = pickled_modules(
        objects.read(uri.bucket, key, length=MOST_BYTES)[1], frozenset(_PICKLED_PACKAGES)
    )
    boosting = next((each for each in _PICKLED_FRAMEWORKS if each in modules), usual)
    chosen = framework or boosting
    packages = sorted(_PICKLED_PACKAGES[each] for each in modules if each != chosen)
    return ModelRequirements(chosen, tuple(packages))


def _model_key(objects: ObjectStore, uri: ObjectUri) -> str | None:
    """The file that tells the format of the newest version, or the URI's own."""
    if _is_model_file(objects, uri):
        return uri.key
    base = uri.key.rstrip("/") + "/"
    listing = objects.list(uri.bucket, base, delimiter=True)
    numbers = [
        name
        for folder in listing.folders
        if (name := PurePosixPath(folder).name).isascii() and name.isdigit()
    ]
    # Folders keep the names that they have: TensorFlow 1 writes 00000001.
    for number in sorted(numbers, key=int, reverse=True):
        found = objects.list(uri.bucket, f"{base}{number}/", delimiter=True).objects
        if (key := _known_file(info.key for info in found)) is not None:
            return key
    return None if numbers else _known_file(info.key for info in listing.objects)


def _is_model_file(objects: ObjectStore, uri: ObjectUri) -> bool:
    path = PurePosixPath(uri.key)
    if uri.key.endswith("/") or (
        path.name not in FRAMEWORKS and named_for_its_format(path.name) is None
    ):
        return False
    if objects.head(uri.bucket, uri.key) is None:
        return False
    if path.name in FRAMEWORKS or path.suffix not in TEXT_MODELS:
        return True
    _, chunks = objects.read(uri.bucket, uri.key, length=BEGINNING_BYTES)
    return begins_as_model(path.name, b"".join(chunks))


def _known_file(keys: Iterable[str]) -> str | None:
    """The first of the known names, in the order of the table."""
    by_name = {PurePosixPath(key).name: key for key in keys}
    return next((by_name[name] for name in FRAMEWORKS if name in by_name), None)


def nothing_at(objects: ObjectStore, uri: ObjectUri) -> str:
    """What was looked for, where, and what lies there instead."""
    base = uri.key.rstrip("/") + "/"
    place = f"fds://{uri.bucket}/{uri.key}".rstrip("/")
    listing = objects.list(uri.bucket, base, delimiter=True, limit=_SHOWN + 1)
    names = [
        each.removeprefix(base)
        for each in (*listing.folders, *(info.key for info in listing.objects))
    ]
    there = (
        ", ".join(names[:_SHOWN]) + (" …" if len(names) > _SHOWN else "") if names else "nothing"
    )
    kinds = ", ".join(FRAMEWORKS)
    expected = f"a folder with a number for its name, such as {place}/1, that holds one of {kinds}"
    if not names and uri.key and objects.head(uri.bucket, uri.key) is not None:
        there = "a file, which is no model"
    elif not names and (near := _files_above(objects, uri)):
        there = f"nothing; beside it there is {near}"
    return f"{place} has no model: looked for {expected}; there is {there}"


def _files_above(objects: ObjectStore, uri: ObjectUri) -> str:
    """What lies in the folder above."""
    above = uri.key.rstrip("/").rpartition("/")[0]
    listing = objects.list(
        uri.bucket, above + "/" if above else "", delimiter=True, limit=_SHOWN + 1
    )
    names = [*listing.folders, *(info.key for info in listing.objects)]
    return ", ".join(f"fds://{uri.bucket}/{name}" for name in names[:_SHOWN]) + (
        " …" if len(names) > _SHOWN else ""
    )
