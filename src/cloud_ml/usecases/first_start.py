"""What a server finds or makes when it starts: an organisation, its bucket, and a key for its
administrator.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cloud_ml.domain.tenancy import Role
from cloud_ml.errors import AlreadyExists, InvalidRequest, NotFound
from cloud_ml.usecases.access.identities import Identities, Identity, Organisation
from cloud_ml.usecases.storage.objects import Storage

ORGANISATION_NAME = "default"
BUCKET_NAME = "cloudml"
ADMIN = "admin"
ADMIN_KEY = "cloudml-admin"
"""The access key that is made when none is given. Fixed, so that servers that start at once make
one, not two.
"""


@dataclass(frozen=True)
class FirstStart:
    """What stands after ``bootstrap``. ``admin`` is ``None`` when the operator has disabled
    every such key.
    """

    organisation: Organisation
    bucket: str
    admin: Identity | None = field(repr=False)


def bootstrap(
    identities: Identities,
    storage: Storage,
    *,
    access_key: str | None = None,
    secret: str | None = None,
) -> FirstStart:
    """Make what is missing; what is there stays.

    Every step is found done when it is repeated, so the process may be killed anywhere in between
    and servers may do it at the same time. With ``access_key`` and ``secret`` given, that key is
    valid afterwards with that secret; without, the oldest key of an administrator is returned, and
    made if the organisation has none.

    Raises:
        InvalidRequest: Only one half of the key is given, or it belongs to another organisation.
    """
    if (access_key is None) != (secret is None):
        raise InvalidRequest(
            "an access key and its secret are given together or not at all",
            field="secret_key" if secret is None else "access_key",
        )
    identities.adopt()
    organisation = _organisation(identities)
    storage.create_bucket(organisation, BUCKET_NAME, owner=ADMIN)
    if access_key is not None and secret is not None:
        return FirstStart(
            organisation,
            BUCKET_NAME,
            _ensure_identity(identities, organisation, access_key, secret),
        )
    return FirstStart(organisation, BUCKET_NAME, _found_or_made(identities, organisation))


def _organisation(identities: Identities) -> Organisation:
    try:
        return identities.organisation(ORGANISATION_NAME)
    except NotFound:
        pass
    try:
        return identities.create_organisation(ORGANISATION_NAME, default_bucket=BUCKET_NAME)
    except AlreadyExists:  # another server was faster
        return identities.organisation(ORGANISATION_NAME)


def _found_or_made(identities: Identities, organisation: Organisation) -> Identity | None:
    keys = identities.keys(organisation)
    if not keys:
        try:
            return identities.create_key(organisation, ADMIN, role=Role.ADMIN, access_key=ADMIN_KEY)
        except AlreadyExists:  # another server was faster, or the key was disabled
            return identities.find(ADMIN_KEY)
    return next((key for key in keys if key.admin), None)


def _ensure_identity(
    identities: Identities, organisation: Organisation, access_key: str, secret: str
) -> Identity | None:
    known = identities.find(access_key)
    if known is None:
        try:
            return identities.create_key(
                organisation, ADMIN, role=Role.ADMIN, access_key=access_key, secret=secret
            )
        except AlreadyExists:
            known = identities.find(access_key)
    if known is None:
        return None
    if known.org != organisation.name:
        raise InvalidRequest(
            f"the access key {access_key} belongs to another organisation",
            field="access_key",
            value=access_key,
        )
    if known.secret != secret:
        identities.set_secret(access_key, secret)
    return identities.find(access_key)
