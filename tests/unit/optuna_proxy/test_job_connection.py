"""How a proxy in a job finds its server, and why it may not."""

from __future__ import annotations

import pytest

from cloud_ml.errors import Unavailable
from cloud_ml.optuna_proxy.job_connection import connection_of_job

TOKEN = "cmj1.a.1." + "x" * 43
JOB = {"CLOUDML_JOB_ID": "a"}
LED = {"MLFLOW_TRACKING_URI": "http://127.0.0.1:8471/mlflow", "MLFLOW_TRACKING_TOKEN": TOKEN}


def test_the_way_of_a_job_is_that_of_mlflow() -> None:
    found = connection_of_job({**JOB, **LED})
    assert found is not None
    assert str(found.endpoint) == "http://127.0.0.1:8471"
    assert TOKEN not in repr(found)


@pytest.mark.parametrize("environment", [{}, LED, {**JOB, **LED, "CLOUDML_TOKEN": "x"}])
def test_others_have_the_way_of_their_settings(environment: dict[str, str]) -> None:
    assert connection_of_job(environment) is None


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        (JOB, "engine.network is none"),
        ({**JOB, "MLFLOW_TRACKING_URI": "https://mlflow.example.com"}, "MLFLOW_TRACKING_"),
        ({**JOB, **LED, "MLFLOW_TRACKING_TOKEN": "other"}, "MLFLOW_TRACKING_"),
    ],
)
def test_a_job_without_a_token_is_told_why(environment: dict[str, str], why: str) -> None:
    with pytest.raises(Unavailable, match=why) as caught:
        connection_of_job(environment)
    assert "cloudml hp submit" in str(caught.value.hint)
