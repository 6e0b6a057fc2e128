"""The registry of models under changes at the same time, each of which was answered with success."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest

from cloud_ml.domain.tracking.registry import ModelVersionSpec, Stage
from cloud_ml.errors import NotFound
from cloud_ml.usecases.access.identities import Identity
from cloud_ml.usecases.tracking.registry import Registry
from support.platform import Served

_MOMENT_S = 0.5
"""The other change gets so long where it waits for nobody."""


class Meddler:
    """Makes a change in another thread, in the middle of a call of the store."""

    def __init__(self, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        self._store = served.platform.store
        self._monkeypatch = monkeypatch
        self._thread: threading.Thread | None = None
        self.refused: list[NotFound] = []

    def during(self, call: str, change: Callable[[], object]) -> None:
        """Make ``change`` before the next ``call`` of the store begins."""
        real = getattr(self._store, call)

        def work() -> None:
            try:
                change()
            except NotFound as error:
                self.refused.append(error)

        def meddled(*args: Any, **kwargs: Any) -> Any:
            if self._thread is None:
                self._thread = threading.Thread(target=work)
                self._thread.start()
                self._thread.join(_MOMENT_S)
            return real(*args, **kwargs)

        self._monkeypatch.setattr(self._store, call, meddled)

    def end(self) -> None:
        """Wait for the other thread."""
        assert self._thread is not None
        self._thread.join()


@pytest.fixture
def caller(served: Served) -> Identity:
    return served.admin.identity


@pytest.fixture
def registry(served: Served, caller: Identity) -> Registry:
    registry = served.platform.registry
    registry.create(caller, "m", {})
    for _ in range(2):
        registry.create_version(caller, "m", ModelVersionSpec("", 0, "fds://b/m"))
    return registry


@pytest.fixture
def meddler(served: Served, monkeypatch: pytest.MonkeyPatch) -> Meddler:
    return Meddler(served, monkeypatch)


def test_an_alias_set_while_a_model_is_renamed_is_kept_or_refused(
    registry: Registry, caller: Identity, meddler: Meddler
) -> None:
    meddler.during("rename", lambda: registry.set_alias(caller, "m", "champion", 1))
    registry.rename(caller, "m", "n")
    meddler.end()
    assert meddler.refused or registry.by_alias(caller.org, "n", "champion").record.spec.number == 1


def test_a_version_made_while_a_model_is_renamed_keeps_its_number(
    registry: Registry, caller: Identity, meddler: Meddler
) -> None:
    version_spec = ModelVersionSpec("", 0, "fds://b/m")
    meddler.during("rename", lambda: registry.create_version(caller, "m", version_spec))
    registry.rename(caller, "m", "n")
    meddler.end()
    made = registry.create_version(caller, "n", version_spec)
    assert made.record.spec.number == 4 - len(meddler.refused)


def test_two_versions_promoted_at_a_time_leave_one(
    registry: Registry, caller: Identity, meddler: Meddler
) -> None:
    def promote(number: int) -> None:
        registry.set_stage(caller, "m", number, "Production", archive=True)

    meddler.during("list", lambda: promote(2))
    promote(1)
    meddler.end()
    stages = [registry.version(caller.org, "m", n).record.spec.stage for n in (1, 2)]
    assert sorted(stages) == [Stage.ARCHIVED, Stage.PRODUCTION]


def test_no_alias_points_to_a_version_that_was_removed_meanwhile(
    registry: Registry, caller: Identity, meddler: Meddler
) -> None:
    meddler.during("request_delete", lambda: registry.set_alias(caller, "m", "champion", 1))
    registry.delete_version(caller, "m", 1)
    meddler.end()
    with contextlib.suppress(NotFound):
        pytest.fail(str(registry.by_alias(caller.org, "m", "champion")))
    assert "champion" not in registry.find(caller.org, "m").spec.aliases


def test_an_alias_set_behind_the_removal_of_its_version_is_refused(
    registry: Registry, caller: Identity, meddler: Meddler
) -> None:
    meddler.during("change_spec", lambda: registry.delete_version(caller, "m", 1))
    with pytest.raises(NotFound):
        registry.set_alias(caller, "m", "champion", 1)
    meddler.end()
    assert "champion" not in registry.find(caller.org, "m").spec.aliases
