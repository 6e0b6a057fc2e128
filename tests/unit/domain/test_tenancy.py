from __future__ import annotations

import pytest

from cloud_ml.domain.tenancy import ALLOWED, Operation, Role, may_change, permits


@pytest.mark.parametrize(
    ("role", "forbidden"),
    [
        (Role.ADMIN, set()),
        (Role.OWNER, {Operation.MANAGE_PLATFORM}),
        (
            Role.MEMBER,
            {Operation.MANAGE_PLATFORM, Operation.MANAGE_ORGANISATION, Operation.APPLY_FOR_QUOTA},
        ),
        (Role.VIEWER, set(Operation) - {Operation.LOOK}),
    ],
)
def test_what_a_role_may_not(role: Role, forbidden: set[Operation]) -> None:
    assert {operation for operation in Operation if not permits(role, operation)} == forbidden


def test_every_role_has_its_rights_and_each_higher_one_has_more() -> None:
    viewer, member, owner, admin = (
        ALLOWED[role] for role in (Role.VIEWER, Role.MEMBER, Role.OWNER, Role.ADMIN)
    )
    assert viewer < member < owner < admin
    assert set(ALLOWED) == set(Role)


def test_a_viewer_changes_nothing() -> None:
    assert [role for role in Role if not may_change(role)] == [Role.VIEWER]
