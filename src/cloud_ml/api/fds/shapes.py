"""The documents of the storage protocol, by the names that its client reads. Pure. Times:
milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from email.utils import format_datetime
from typing import Any

from cloud_ml.models.storage.objects import Bucket, ObjectPage, StoredObject
from cloud_ml.usecases.access.identities import Identity


def buckets(caller: Identity, found: Sequence[Bucket]) -> dict[str, Any]:
    """A list of buckets."""
    return {"owner": _owner(caller), "buckets": [{"name": bucket.name} for bucket in found]}


def bucket(found: Bucket) -> dict[str, Any]:
    """A bucket."""
    return {"name": found.name, "orgId": found.org, "creationTime": _milliseconds(found.created_at)}


def listing(
    caller: Identity, name: str, query: Mapping[str, str], most: int, page: ObjectPage
) -> dict[str, Any]:
    """A page of objects; its client sends ``nextMarker`` back as ``marker`` while it is
    ``truncated``.
    """
    return {
        "name": name,
        "prefix": query["prefix"],
        "delimiter": query.get("delimiter", ""),
        "marker": query.get("marker", ""),
        "nextMarker": page.next or "",
        "maxKeys": most,
        "truncated": page.next is not None,
        "objects": [
            {
                "name": stored.key,
                "owner": _owner(caller),
                "size": stored.size,
                "uploadTime": _milliseconds(stored.modified),
                "etag": stored.etag,
            }
            for stored in page.objects
        ],
        "commonPrefixes": list(page.folders),
    }


def metadata(stored: StoredObject) -> dict[str, str]:
    """What is known of an object, as headers."""
    return {
        "x-xiaomi-meta-content-length": str(stored.size),
        "Last-Modified": format_datetime(stored.modified, usegmt=True),
    }


def put(caller: Identity, stored: StoredObject) -> dict[str, Any]:
    """A stored object. ``signature`` and ``expires`` would make a link for everybody; here there
    are none.
    """
    return {
        "bucketName": stored.bucket,
        "objectName": stored.key,
        "accessKeyId": caller.access_key,
        "signature": "",
        "expires": 0,
    }


def _owner(caller: Identity) -> dict[str, str]:
    return {"id": str(caller.organisation.number), "displayName": caller.org}


def _milliseconds(when: datetime) -> int:
    return int(when.timestamp() * 1000)
