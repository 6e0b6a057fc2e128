"""The small interface between the server and whatever runs a model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from cloud_ml.serving.signatures import Signature

Array = np.ndarray[Any, np.dtype[Any]]
DEFAULT_SIGNATURE = "serving_default"


class Model(Protocol):
    """One loaded version of a model.

    ``predict`` may be called from one thread at a time, not always the one that loaded it. A model
    may have ``evidence``: what its runtime found out about the rows of each signature, by name.
    Without it, nothing is known.
    """

    signatures: Mapping[str, Signature]

    def predict(self, signature: Signature, inputs: Sequence[Array]) -> Sequence[Array]:
        """Run it: arrays in the order of ``signature.inputs``, and back in the order of
        ``signature.outputs``.

        Arrays that come in may be read-only and must not be changed. What a model raises is told to
        the caller as INTERNAL, except for ``BadRequest``.
        """

    def close(self) -> None:
        """Give back memory, files and threads."""


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How models are loaded.

    ``tensorflow_engine`` is ``auto`` (onnxruntime where it gives the same answers faster) or
    ``tensorflow``; converted models lie in ``cache``, and converting one may take ``convert_s``
    seconds. ``allow_code`` lets formats in that run what stands in them.
    """

    tensorflow_engine: str = "auto"
    cache: Path = Path.home() / ".cache" / "cloudml-serve"
    convert_s: float = 300.0
    allow_code: bool = False


class Runtime(Protocol):
    """Loads one format. ``runs_code`` says that loading it runs code that lies in the model."""

    name: str
    runs_code: bool

    def recognises(self, folder: Path) -> bool:
        """Whether the folder of a version holds this format. Only looks at names."""

    def load(self, folder: Path, options: LoadOptions) -> Model:
        """Load the version.

        Raises:
            ModelFailed: where it is damaged or needs what is not installed, with the reason.
        """
