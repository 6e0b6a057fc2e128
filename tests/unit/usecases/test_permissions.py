"""The words of a refusal."""

from __future__ import annotations

import pytest

from cloud_ml.domain.tenancy import Operation, Role
from cloud_ml.errors import Forbidden
from cloud_ml.usecases.access.identities import Identity, Organisation
from cloud_ml.usecases.access.permissions import permit, permit_change


def _caller(role: Role) -> Identity:
    return Identity("key", "secret", Organisation("lab", 1), "olga", role)


@pytest.mark.parametrize(
    ("role", "sentence"),
    [
        (Role.OWNER, "olga is an owner and may not manage organisations and quotas"),
        (Role.MEMBER, "olga is a member and may not manage organisations and quotas"),
    ],
)
def test_a_role_has_its_article(role: Role, sentence: str) -> None:
    with pytest.raises(Forbidden, match=f"^{sentence}$"):
        permit(_caller(role), Operation.MANAGE_PLATFORM)


def test_who_may_only_look_is_refused_in_one_sentence() -> None:
    with pytest.raises(Forbidden, match=r"^olga is a viewer and may look, but change nothing$"):
        permit_change(_caller(Role.VIEWER))
