from __future__ import annotations

import pytest

from cloud_ml.domain.tenancy import ACCESS_KEY, SYSTEM, Role, Standing, StandingStatus
from cloud_ml.errors import AlreadyExists, Forbidden, InvalidRequest, NotFound
from cloud_ml.state.memory import MemoryStateStore
from cloud_ml.usecases.access.identities import Identities
from support.platform import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStateStore:
    return MemoryStateStore(clock=clock)


@pytest.fixture
def identities(store: MemoryStateStore, clock: ManualClock) -> Identities:
    return Identities(store, clock, ttl_s=5)


def test_organisations_get_numbers_of_their_own(identities: Identities) -> None:
    made = [identities.create_organisation(name) for name in ("default", "vision", "speech")]
    assert [one.number for one in made] == [1, 2, 3]
    assert list(identities.organisations()) == made


def test_a_number_claimed_before_a_crash_is_taken_up_again(
    store: MemoryStateStore, identities: Identities, clock: ManualClock
) -> None:
    identities.create_organisation("default")
    assert identities._claim_number("vision") == 2  # and then the server dies
    assert Identities(store, clock).create_organisation("vision").number == 2


def test_two_servers_never_give_the_same_number(
    store: MemoryStateStore,
    identities: Identities,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other server claims the number between this one's look and its claim."""
    other = Identities(store, clock)
    look = store.list

    def look_and_be_overtaken(*args: object, **kwargs: object) -> object:
        page = look(*args, **kwargs)  # type: ignore[arg-type]
        monkeypatch.undo()
        other.create_organisation("faster")
        return page

    monkeypatch.setattr(store, "list", look_and_be_overtaken)
    assert identities.create_organisation("slower").number == 2


@pytest.mark.parametrize("name", ["system", "Upper", "", "a" * 64])
def test_reserved_and_malformed_names_are_refused(identities: Identities, name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        identities.create_organisation(name)
    assert caught.value.field == "org"


def test_a_name_is_given_once(identities: Identities) -> None:
    identities.create_organisation("vision")
    with pytest.raises(AlreadyExists):
        identities.create_organisation("vision")


def test_a_key_leads_to_its_holder(identities: Identities) -> None:
    vision = identities.create_organisation("vision", default_bucket="vision-data")
    made = identities.create_key(vision, "mei")
    found = identities.find(made.access_key)
    assert found == made
    assert (made.org, made.admin, made.organisation.default_bucket) == (
        "vision",
        False,
        "vision-data",
    )


def test_generated_keys_are_long_and_differ(identities: Identities) -> None:
    vision = identities.create_organisation("vision")
    keys = [identities.create_key(vision, "mei") for _ in range(3)]
    assert len({key.access_key for key in keys} | {key.secret for key in keys}) == 6
    assert all(len(key.secret) >= 40 for key in keys)


def test_the_secret_is_in_no_representation(identities: Identities) -> None:
    made = identities.create_key(identities.create_organisation("vision"), "mei")
    assert made.secret not in repr(made)


@pytest.mark.parametrize("access_key", ["", "with space", "line\nfeed", "umläut", "x" * 129])
def test_what_cannot_travel_in_a_header_is_no_key(identities: Identities, access_key: str) -> None:
    vision = identities.create_organisation("vision")
    assert identities.find(access_key) is None
    with pytest.raises(InvalidRequest):
        identities.create_key(vision, "mei", access_key=access_key)


def test_a_disabled_key_is_refused_when_the_cache_runs_out(
    store: MemoryStateStore, identities: Identities, clock: ManualClock
) -> None:
    made = identities.create_key(identities.create_organisation("vision"), "mei")
    assert identities.find(made.access_key) is not None
    record = store.find(ACCESS_KEY, SYSTEM, made.access_key)
    assert record is not None
    store.commit_status(
        ACCESS_KEY,
        record.key.uid,
        StandingStatus(Standing.DISABLED),
        expected_revision=record.revision,
        fence=None,
        now=clock(),
    )
    assert identities.find(made.access_key) is not None
    clock.advance(5)
    assert identities.find(made.access_key) is None
    assert identities.cached(made.access_key) is None


def test_a_new_secret_counts_at_once(identities: Identities) -> None:
    made = identities.create_key(identities.create_organisation("vision"), "mei", role=Role.ADMIN)
    identities.find(made.access_key)
    identities.set_secret(made.access_key, "another")
    found = identities.find(made.access_key)
    assert found is not None
    assert (found.secret, found.role, found.user) == ("another", Role.ADMIN, "mei")


def test_scope_narrows_to_what_the_caller_may_see(identities: Identities) -> None:
    vision, speech = (
        identities.create_organisation("vision"),
        identities.create_organisation("speech"),
    )
    member = identities.create_key(vision, "mei")
    admin = identities.create_key(vision, "root", role=Role.ADMIN)
    assert identities.scope(member, None) == "vision"
    assert identities.scope(member, str(vision.number)) == "vision"
    assert identities.scope(admin, str(speech.number)) == "speech"
    assert identities.scope(admin, "-1") is None
    with pytest.raises(Forbidden):
        identities.scope(member, "-1")


def test_a_foreign_organisation_looks_like_a_missing_one(identities: Identities) -> None:
    vision = identities.create_organisation("vision")
    speech = identities.create_organisation("speech")
    member = identities.create_key(vision, "mei")
    answers = []
    for org_id in (str(speech.number), "77"):
        with pytest.raises(NotFound) as caught:
            identities.scope(member, org_id)
        answers.append(str(caught.value).replace(org_id, "N"))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("org_id", ["77", "x", "²", "-2", "0x1", "9" * 50])
def test_an_absent_organisation_is_not_found_by_an_admin_either(
    identities: Identities, org_id: str
) -> None:
    admin = identities.create_key(identities.create_organisation("vision"), "root", role=Role.ADMIN)
    with pytest.raises(NotFound):
        identities.scope(admin, org_id)
