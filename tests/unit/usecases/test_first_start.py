from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cloud_ml.domain.tenancy import ACCESS_KEY, ORGANISATION, SYSTEM
from cloud_ml.errors import InvalidRequest
from cloud_ml.objects.memory import MemoryObjectStore
from cloud_ml.state.memory import MemoryStateStore
from cloud_ml.usecases.access.identities import Identities
from cloud_ml.usecases.first_start import FirstStart, bootstrap
from cloud_ml.usecases.storage.objects import Storage
from support.platform import ManualClock


class Killed(BaseException):
    """The process ends here."""


class Machine:
    """A disk that outlives the servers on it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStateStore(clock=self.clock)
        self.objects = MemoryObjectStore()

    def start(self, **keys: str) -> FirstStart:
        identities = Identities(self.store, self.clock)
        return bootstrap(identities, Storage(self.store, self.objects, self.clock), **keys)

    @contextmanager
    def killed_after(self, writes: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Kill the server behind its n-th write."""
        left = writes

        def counted(write: Any) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                nonlocal left
                result = write(*args, **kwargs)
                left -= 1
                if left == 0:
                    raise Killed
                return result

            return call

        with monkeypatch.context() as patch:
            patch.setattr(self.store, "create", counted(self.store.create))
            patch.setattr(self.objects, "create_bucket", counted(self.objects.create_bucket))
            yield


def test_the_first_start_makes_everything() -> None:
    machine = Machine()
    first = machine.start()
    assert first.admin is not None
    assert (first.admin.legacy_signatures, first.admin.fds_signatures) == (False, True)
    assert (first.organisation.name, first.organisation.number) == ("default", 1)
    assert first.admin.admin
    assert first.bucket == first.organisation.default_bucket == "cloudml"
    assert list(machine.objects.buckets()) == ["cloudml"]


def test_later_starts_find_it() -> None:
    machine = Machine()
    assert machine.start() == machine.start()
    machine.clock.advance(365 * 86_400)
    machine.store.prune(machine.clock())
    again = machine.start()
    assert again.admin is not None
    assert len(machine.store.list(ACCESS_KEY, org=SYSTEM).items) == 1
    assert len(machine.store.list(ORGANISATION, org=SYSTEM).items) == 1


@pytest.mark.parametrize("writes", [1, 2, 3, 4, 5])
def test_a_start_that_was_killed_is_finished_by_the_next(
    writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine()
    with machine.killed_after(writes, monkeypatch), pytest.raises(Killed):
        machine.start()
    first = machine.start()
    assert first.admin is not None
    assert first.organisation.number == 1
    assert list(machine.objects.buckets()) == ["cloudml"]
    assert len(machine.store.list(ACCESS_KEY, org=SYSTEM).items) == 1


def test_given_keys_are_the_admins() -> None:
    first = Machine().start(access_key="ak", secret="sk")
    assert first.admin is not None
    assert (first.admin.access_key, first.admin.secret, first.admin.admin) == ("ak", "sk", True)


def test_given_keys_stay_when_they_are_given_no_more() -> None:
    machine = Machine()
    machine.start(access_key="ak", secret="sk")
    later = machine.start()
    assert later.admin is not None
    assert later.admin.access_key == "ak"


def test_keys_given_later_stand_beside_the_first() -> None:
    machine = Machine()
    generated = machine.start().admin
    given = machine.start(access_key="ak", secret="sk").admin
    assert generated is not None
    assert given is not None
    identities = Identities(machine.store, machine.clock)
    assert identities.find(generated.access_key) is not None
    assert identities.find("ak") == given


def test_another_secret_for_a_given_key_replaces_the_old_one() -> None:
    machine = Machine()
    machine.start(access_key="ak", secret="old")
    changed = machine.start(access_key="ak", secret="new").admin
    assert changed is not None
    assert changed.secret == "new"


@pytest.mark.parametrize("half", [{"access_key": "ak"}, {"secret": "sk"}])
def test_half_a_key_is_refused(half: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest, match="together"):
        Machine().start(**half)


def test_a_key_of_another_organisation_is_refused() -> None:
    machine = Machine()
    machine.start()
    identities = Identities(machine.store, machine.clock)
    identities.create_key(
        identities.create_organisation("vision"), "mei", access_key="ak", secret="sk"
    )
    with pytest.raises(InvalidRequest, match="another organisation"):
        machine.start(access_key="ak", secret="sk")
