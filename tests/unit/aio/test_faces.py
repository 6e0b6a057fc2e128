"""Both faces of the SDK offer the same: names, parameters, defaults, and what comes out of them."""

from __future__ import annotations

import inspect
import re

import pytest

from cloud_ml.aio.admin.calls import AsyncAdmin
from cloud_ml.aio.admin.quota import AsyncQuota
from cloud_ml.aio.answers import AsyncAnswer
from cloud_ml.aio.client import AsyncCloudMlClient
from cloud_ml.aio.jobs.handles import AsyncJobHandle
from cloud_ml.aio.logged_run import AsyncLoggedRun
from cloud_ml.aio.models.handles import AsyncServiceHandle
from cloud_ml.aio.models.predicting import AsyncPredictions
from cloud_ml.aio.storage.client import AsyncStorage
from cloud_ml.aio.study_handle import AsyncStudyHandle
from cloud_ml.client import CloudMlClient
from cloud_ml.sdk.admin.calls import Admin
from cloud_ml.sdk.admin.quota import Quota
from cloud_ml.sdk.answers import Answer
from cloud_ml.sdk.jobs.handles import JobHandle
from cloud_ml.sdk.logged_run import LoggedRun
from cloud_ml.sdk.models.handles import ServiceHandle
from cloud_ml.sdk.models.predicting import Predictions
from cloud_ml.sdk.storage.client import Storage
from cloud_ml.sdk.study_handle import StudyHandle

FACES = [
    (CloudMlClient, AsyncCloudMlClient),
    (JobHandle, AsyncJobHandle),
    (ServiceHandle, AsyncServiceHandle),
    (Predictions, AsyncPredictions),
    (Storage, AsyncStorage),
    (Admin, AsyncAdmin),
    (Quota, AsyncQuota),
    (Answer, AsyncAnswer),
    (StudyHandle, AsyncStudyHandle),
    (LoggedRun, AsyncLoggedRun),
]
SAME = {"aclose": "close"}
WIDER = {"upload_stream"}
"""The awaiting face takes asynchronous sources, too."""


def _public(kind: type) -> dict[str, object]:
    return {
        SAME.get(name, name): thing
        for name, thing in inspect.getmembers(kind)
        if not name.startswith("_")
    }


def _signature(thing: object) -> str:
    found = str(inspect.signature(thing))  # type: ignore[arg-type]
    return re.sub(r"\bAsync(?=[A-Z])", "", found)


@pytest.mark.parametrize(("blocking", "awaiting"), FACES)
def test_both_faces_have_the_same_methods(blocking: type, awaiting: type) -> None:
    assert set(_public(blocking)) == set(_public(awaiting))


@pytest.mark.parametrize(("blocking", "awaiting"), FACES)
def test_methods_take_and_give_the_same(blocking: type, awaiting: type) -> None:
    here, there = _public(blocking), _public(awaiting)
    for name in set(here) - WIDER:
        if inspect.isfunction(here[name]):
            assert _signature(here[name]) == _signature(there[name]), f"{blocking.__name__}.{name}"
            assert inspect.getdoc(here[name]), f"{blocking.__name__}.{name} says nothing of itself"


@pytest.mark.parametrize(("blocking", "awaiting"), FACES)
def test_what_asks_the_server_is_awaited_or_iterated_over(blocking: type, awaiting: type) -> None:
    local = {"close", "presign", "model_token", "predictions", "resources", "run"}
    for name, thing in _public(awaiting).items():
        if inspect.isfunction(thing) and name not in local:
            given = str(inspect.signature(thing).return_annotation)
            assert inspect.iscoroutinefunction(thing) or given.startswith("AsyncGenerator["), name
