"""The name of a model's only output, which REST leaves out, from the metadata."""

from __future__ import annotations

from typing import Any

import pytest

from cloud_ml.errors import TransportError
from cloud_ml.sdk.models.inference import only_output


def _metadata(outputs: Any) -> dict[str, Any]:
    return {
        "metadata": {"signature_def": {"signature_def": {"serving_default": {"outputs": outputs}}}}
    }


@pytest.mark.parametrize("names", [["y"], ["label", "probabilities", "output"]])
def test_outputs_on_request_come_after_it(names: list[str]) -> None:
    assert only_output(_metadata({name: {} for name in names}), None) == names[0]


@pytest.mark.parametrize(
    "metadata",
    [None, {}, [], "x", _metadata({}), _metadata([]), _metadata("text"), _metadata(None)],
)
def test_metadata_of_something_else_is_an_error(metadata: Any) -> None:
    with pytest.raises(TransportError, match="one output"):
        only_output(metadata, None)
