"""The models that a server answers for: names, versions, labels."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from cloud_ml.serving.errors import BadRequest, LoadFailed, ModelNotFound, NotReady
from cloud_ml.serving.loaded import LoadedVersion


class Choice(NamedTuple):
    """Which version of which model a request wants: see ``ModelTable.find``."""

    name: str
    number: int | None = None
    label: str | None = None


@dataclass(slots=True)
class ServedModel:
    """One name: the versions that answer, by number, and the names that some of them have.

    ``why_not`` is for who asks while no version answers. ``load_failed``: no load is tried again
    unless files change.
    """

    name: str
    versions: dict[int, LoadedVersion] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    why_not: str = ""
    load_failed: bool = False


class ModelTable:
    """Who answers for what. ``generation`` grows with every change, so that what was looked up
    can be kept.
    """

    def __init__(self) -> None:
        self._models: dict[str, ServedModel] = {}
        self.generation = 0

    @property
    def models(self) -> Mapping[str, ServedModel]:
        """Every name that is served."""
        return self._models

    def declare(self, name: str) -> ServedModel:
        """A name that will have versions."""
        self.generation += 1
        return self._models.setdefault(name, ServedModel(name))

    def remove(self, name: str) -> None:
        """A name that is not served any more; its versions were taken away before."""
        self.generation += 1
        self._models.pop(name, None)

    def put(self, version: LoadedVersion) -> None:
        """A version answers from now on."""
        self.declare(version.name).versions[version.number] = version

    def take(self, name: str, number: int) -> LoadedVersion | None:
        """A version answers no more; what is under way goes on."""
        self.generation += 1
        model = self._models.get(name)
        return model.versions.pop(number, None) if model is not None else None

    def label(self, name: str, labels: Mapping[str, int]) -> None:
        """Give versions of a model their names."""
        self.declare(name).labels = dict(labels)

    def find(self, name: str, number: int | None = None, label: str | None = None) -> LoadedVersion:
        """The version that answers: by number, by label, or the newest.

        Raises:
            ModelNotFound: for a name, number or label that is not served.
            NotReady: where the name is known and no version of it can answer yet.
            LoadFailed: where none ever will of the files that are there.
        """
        if not name:
            raise BadRequest("the request names no model")
        model = self._models.get(name)
        if model is None:
            raise ModelNotFound(f"no model {name!r} is served here")
        if not model.versions:
            why = f": {model.why_not}" if model.why_not else ""
            if model.load_failed:
                raise LoadFailed(f"no version of model {name!r} can be loaded{why}")
            raise NotReady(f"no version of model {name!r} is ready{why}")
        if label is not None:
            number = model.labels.get(label)
            if number is None:
                known = ", ".join(sorted(model.labels)) or "none"
                raise ModelNotFound(f"model {name!r} has no label {label!r}; it has {known}")
        found = model.versions.get(max(model.versions) if number is None else number)
        if found is None:
            ready = ", ".join(str(each) for each in sorted(model.versions))
            raise ModelNotFound(f"version {number} of model {name!r} is not served; ready: {ready}")
        return found
