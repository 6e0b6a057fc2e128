"""The modules from which the documentation has programs import, wherever their classes are."""

from __future__ import annotations

import cloud_ml


def test_wire_types_of_programs_have_the_names_that_the_documentation_gives() -> None:
    from cloud_ml.models.model_service import ModelService
    from cloud_ml.models.train_job import RoleSpec, TrainJob

    assert TrainJob is cloud_ml.TrainJob
    assert ModelService is cloud_ml.ModelService
    assert RoleSpec(count=2).replicas == 2
