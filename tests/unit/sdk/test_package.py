"""What people import first."""

from __future__ import annotations

import pytest

import cloud_ml
from cloud_ml import (
    AsyncCloudMlClient,
    CloudMlClient,
    ModelService,
    NewStudy,
    NewTensorBoard,
    TrainJob,
)
from cloud_ml.models.jobs.train_job import TrainJob as Original


def test_the_names_of_the_sdk_are_in_the_package() -> None:
    assert TrainJob is Original
    types = (AsyncCloudMlClient, CloudMlClient, ModelService, NewStudy, NewTensorBoard)
    assert all(isinstance(each, type) for each in types)
    assert {*cloud_ml.__all__} == {*cloud_ml._SDK, "__version__"}  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="has no attribute 'Client'"):
        _ = cloud_ml.Client  # type: ignore[attr-defined]
