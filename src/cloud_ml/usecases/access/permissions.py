"""Whether a caller may: the table in ``domain.tenancy``, and the words of the refusal."""

from __future__ import annotations

from cloud_ml.domain.tenancy import Operation, Role, may_change, permits
from cloud_ml.errors import Forbidden
from cloud_ml.models.common import with_article
from cloud_ml.usecases.access.identities import Identity


def permit(caller: Identity, operation: Operation) -> None:
    """Let pass who may.

    Raises:
        Forbidden: The caller's role may not.
    """
    if not permits(caller.role, operation):
        able = " or ".join(role.value for role in Role if permits(role, operation))
        raise Forbidden(
            f"{caller.user} is {with_article(caller.role.value)} and may not {operation.value}",
            field="role",
            value=caller.role.value,
            allowed=able,
        )


def permit_change(caller: Identity) -> None:
    """Stop at the door who may change nothing, whatever the request is about.

    Raises:
        Forbidden: The caller may only look.
    """
    if not may_change(caller.role):
        able = " or ".join(role.value for role in Role if may_change(role))
        raise Forbidden(
            f"{caller.user} is {with_article(caller.role.value)} and may look, but change nothing",
            field="role",
            value=caller.role.value,
            allowed=able,
        )
