"""What the parts of the contract of an object store share."""

from __future__ import annotations

from cloud_ml.objects.base import ObjectStore
from cloud_ml.objects.info import Listing

BUCKET = "data"

IMPOSSIBLE_KEYS = [
    "",
    "/",
    "a/",
    "/a",
    "a//b",
    ".",
    "..",
    "../a",
    "a/../b",
    "a/.",
    "a\\b",
    "a\nb",
    "a\0b",
    "\ud800",
]
IMPOSSIBLE_KEYS += ["a" * 256, "é" * 128, "/".join(["a" * 200] * 6)]
LONGEST_KEYS = ["a" * 255, "é" * 127, "/".join(["d"] * 512), "/".join(["b" * 204] * 5)]
IN_BYTE_ORDER = [
    "a b",
    "a-b",
    "a.txt",
    "a/b",
    "a/c/d",
    "a0",
    "aa",
    "b/c",
    "z",
    "é",
    "日本/語",
    "\U0001f600",
]


def keys(listing: Listing) -> list[str]:
    """The keys of a page."""
    return [info.key for info in listing.objects]


def fill(store: ObjectStore, *names: str) -> None:
    """Objects whose content is their key."""
    for name in names:
        store.put(BUCKET, name, name.encode())
