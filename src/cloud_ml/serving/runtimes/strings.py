"""Strings as frameworks take them: requests bring bytes."""

import numpy as np

from cloud_ml.serving.errors import BadRequest
from cloud_ml.serving.runtimes.base import Array


def as_text(name: str, array: Array) -> Array:
    """An array of strings as ``str``. ``name`` is the input that they are for.

    Raises:
        BadRequest: for bytes that are no UTF-8.
    """
    made = np.empty(array.shape, object)
    try:
        made.ravel()[:] = [
            each.decode() if isinstance(each, bytes) else each for each in array.ravel()
        ]
    except UnicodeDecodeError as error:
        raise BadRequest(f"input {name!r} has a string that is no UTF-8") from error
    return made
