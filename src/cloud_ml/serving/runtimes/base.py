"""The small interface between the server and whatever runs a model."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from cloud_ml.serving.signatures import Signature

Array = np.ndarray[Any, np.dtype[Any]]
DEFAULT_SIGNATURE = "serving_default"


class Model(Protocol):
    """One loaded version of a model.

    ``predict`` may be called from one thread at a time, not always the one that loaded it.
    """

    signatures: Mapping[str, Signature]

    def predict(self, signature: Signature, inputs: Sequence[Array]) -> Sequence[Array]:
        """Run it: arrays in the order of ``signature.inputs``, and back in the order of ``signature.outputs``.

        Arrays that come in may be read-only and must not be changed. What a model raises is told to the caller
        as INTERNAL, except for ``BadRequest``.
        """

    def close(self) -> None:
        """Give back memory, files and threads."""


class Runtime(Protocol):
    """Loads one format."""

    name: str

    def recognises(self, folder: Path) -> bool:
        """Whether the folder of a version holds this format. Only looks at names."""

    def load(self, folder: Path) -> Model:
        """Load the version.

        Raises:
            ModelFailed: where it is damaged or needs what is not installed, with the reason.
        """
