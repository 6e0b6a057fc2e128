"""Rights that are taken away at the same time, on two servers with one database."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from cloud_ml.domain.tenancy import ACCESS_KEY, SYSTEM, USER, Role
from cloud_ml.errors import Conflict, Unavailable
from cloud_ml.models.admin import accounts
from cloud_ml.objects.memory import MemoryObjectStore
from cloud_ml.settings import KeySettings
from cloud_ml.state.memory import MemoryStateStore
from cloud_ml.usecases.access import rights
from cloud_ml.usecases.access.identities import Identities, Identity
from cloud_ml.usecases.access.keys import Keys
from cloud_ml.usecases.access.organisations import Organisations
from cloud_ml.usecases.access.rights import Rights
from cloud_ml.usecases.access.users import Users
from cloud_ml.usecases.clock import system_clock
from cloud_ml.usecases.storage.objects import Storage
from support.platform import ManualClock


class OneServer:
    """A server's use cases over a database that others use, too. ``looked`` is called before
    rights are written.
    """

    def __init__(
        self, store: MemoryStateStore, clock: ManualClock, looked: Callable[[], None]
    ) -> None:
        self.identities = Identities(store, clock)
        everybody = self.identities.everybody

        def watched():  # type: ignore[no-untyped-def]
            yield from list(everybody())
            looked()

        self.identities.everybody = watched  # type: ignore[method-assign]
        self.users = Users(store, self.identities, clock)
        self.keys = Keys(store, self.identities, self.users, clock, KeySettings())
        self.organisations = Organisations(
            store, self.identities, Storage(store, MemoryObjectStore(), clock), clock
        )


WAYS: dict[str, Callable[[OneServer, Identity, Identity], object]] = {
    "remove": lambda server, by, whom: server.users.delete(by, whom.user, whom.org),
    "demote": lambda server, by, whom: server.users.change(
        by, whom.user, accounts.UserChange(role="member"), whom.org
    ),
    "disable": lambda server, by, whom: server.users.change(
        by, whom.user, accounts.UserChange(enabled=False), whom.org
    ),
    "revoke": lambda server, by, whom: server.keys.revoke(by, whom.access_key),
    "disable the key": lambda server, by, whom: server.keys.change(
        by, whom.access_key, accounts.KeyChange(enabled=False)
    ),
    "disable the organisation": lambda server, by, whom: server.organisations.change(
        by, whom.org, accounts.OrganisationChange(enabled=False)
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_two_admins_who_take_each_others_rights_at_once_leave_one(way: str) -> None:
    clock = ManualClock()
    store = MemoryStateStore(clock=clock)
    both_looked = threading.Barrier(2)

    def looked() -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            both_looked.wait(0.5)  # where both may look before one has written, both are here

    here, there = OneServer(store, clock, looked), OneServer(store, clock, looked)
    admins = [
        here.identities.create_key(here.identities.create_organisation(org), org, role=Role.ADMIN)
        for org in ("red", "blue")
    ]

    def take(server: OneServer, by: Identity, whom: Identity) -> bool:
        try:
            WAYS[way](server, by, whom)
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        one, other = (
            pool.submit(take, here, admins[0], admins[1]),
            pool.submit(take, there, admins[1], admins[0]),
        )
        assert sorted([one.result(), other.result()]) == [False, True]
    left = [one for one in Identities(store, clock).everybody() if one.admin]
    assert len(left) == 1


def test_who_lost_the_turn_writes_nothing() -> None:
    clock = ManualClock()
    store = MemoryStateStore(clock=clock)
    identities = Identities(store, clock)
    key = identities.create_key(identities.create_organisation("red"), "max")
    record = store.find(ACCESS_KEY, SYSTEM, key.access_key)
    assert record is not None
    with (
        pytest.raises(Unavailable, match="nothing was changed"),
        Rights(store, clock).taking() as fence,
    ):
        clock.advance(60)
        with Rights(store, clock).taking():
            store.request_delete(ACCESS_KEY, record.key.uid, now=clock(), fence=fence)
    assert identities.find(key.access_key) is not None


def test_the_turn_of_a_server_that_was_killed_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next start of that server makes its first bucket: it failed with "try again"."""
    for name in ("_TTL_S", "_PATIENCE_S"):
        monkeypatch.setattr(rights, name, getattr(rights, name) / 20)
    store = MemoryStateStore(clock=system_clock)
    killed = rights.turn(store, system_clock, "buckets of red", "busy")
    killed.__enter__()
    with rights.turn(store, system_clock, "buckets of red", "busy") as fence:
        assert fence.epoch == 2


def test_the_turn_of_a_server_that_was_killed_while_its_clock_was_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until the time that it had, rights could not be changed, and no server could start."""
    for name in ("_TTL_S", "_PATIENCE_S"):
        monkeypatch.setattr(rights, name, getattr(rights, name) / 20)
    store = MemoryStateStore(clock=system_clock)
    ahead = rights.turn(
        store, lambda: system_clock() + timedelta(hours=3), "buckets of red", "busy"
    )
    ahead.__enter__()
    with rights.turn(store, system_clock, "buckets of red", "busy") as fence:
        assert fence.epoch == 2


def test_an_answer_that_was_on_its_way_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request reads the key, then the key is disabled here, then the request would keep what
    it read.
    """
    clock = ManualClock()
    store = MemoryStateStore(clock=clock)
    identities = Identities(store, clock)
    users = Users(store, identities, clock)
    boss = identities.create_key(identities.create_organisation("red"), "boss", role=Role.ADMIN)
    key = identities.create_key(boss.organisation, "max")
    find = store.find

    def overtaken(kind: object, org: str, name: str) -> object:
        found = find(kind, org, name)  # type: ignore[arg-type]
        if kind is ACCESS_KEY:
            monkeypatch.undo()
            users.change(boss, "max", accounts.UserChange(mail="m@example.com"))
            identities.clear()
        return found

    monkeypatch.setattr(store, "find", overtaken)
    identities.find(key.access_key)
    assert identities.cached(key.access_key) is None


def test_a_key_without_a_user_does_not_come_to_life_with_a_namesake() -> None:
    clock = ManualClock()
    store = MemoryStateStore(clock=clock)
    identities = Identities(store, clock)
    users = Users(store, identities, clock)
    boss = identities.create_key(identities.create_organisation("red"), "boss", role=Role.ADMIN)
    users.create(boss, accounts.NewUser(name="max"))
    old = identities.create_key(boss.organisation, "max")
    record = users.find(boss.organisation, "max")
    store.delete(
        USER, record.key.uid, fence=None
    )  # as where a key is made in the moment of the removal
    users.create(boss, accounts.NewUser(name="max", role="owner"))
    assert identities.find(old.access_key) is None
