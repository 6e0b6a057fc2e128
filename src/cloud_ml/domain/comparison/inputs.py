"""The manifest of a job's inputs: which objects its URIs led to when it ran. Pure.

It is kept with the data sets of its run, as MLflow has them: one for each URI, with one digest of
all its objects. The list of the objects lies beside, where it is not too long.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

MOST_URIS, MOST_LISTED = 50, 10_000
"""Objects beyond this number are known by the digest of their URI only."""
_SOURCE = "cloudml"
_LONGEST_LISTING = 600_000
_MOST_INFLATED, _MOST_SIGNS = 16_000_000, 400_000
"""Of the lists of objects of one run: characters, and signs that begin a value. Each value takes
memory, and users can add lists of their own.
"""
_MOST_NAMED = 5


class InputObject(NamedTuple):
    """``digest`` is the SHA-256 of the content, or ``etag:`` and what changes with it."""

    key: str
    size: int
    digest: str


@dataclass(frozen=True)
class InputManifest:
    """What was at a URI. ``listed`` is empty where there were too many objects."""

    uri: str
    digest: str
    objects: int = 0
    size: int = 0
    listed: Sequence[InputObject] = field(default=())

    @property
    def shown(self) -> str:
        """In words."""
        some = "1 object" if self.objects == 1 else f"{self.objects} objects"
        return f"{some}, {self.size} bytes, {self.digest[:12]}" if self.objects else "nothing"


class ManifestBuilder:
    """Takes the objects of a URI one by one, in the order of their keys."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._digest = hashlib.sha256()
        self._objects = 0
        self._size = 0
        self._listed: list[InputObject] = []

    def add(self, one: InputObject) -> None:
        """Add an object."""
        self._digest.update(f"{one.key}\0{one.size}\0{one.digest}\n".encode())
        self._objects += 1
        self._size += one.size
        if self._objects <= MOST_LISTED:
            self._listed.append(one)

    def built(self) -> InputManifest:
        """The manifest."""
        listed = self._listed if self._objects <= MOST_LISTED else []
        digest = self._digest.hexdigest()
        return InputManifest(self._uri, digest, self._objects, self._size, listed)


def manifest_of(uri: str, objects: Iterable[InputObject]) -> InputManifest:
    """The manifest of these objects, in the order of their keys."""
    builder = ManifestBuilder(uri)
    for one in objects:
        builder.add(one)
    return builder.built()


def entries_of(manifest: InputManifest) -> Iterator[dict[str, Any]]:
    """The manifest as entries of a run's inputs."""
    profile = {"objects": manifest.objects, "bytes": manifest.size, "sha256": manifest.digest}
    yield {
        "dataset": {
            "name": manifest.uri[:500],
            "digest": manifest.digest[:36],
            "source_type": _SOURCE,
            "source": json.dumps({"uri": manifest.uri}),
            "profile": json.dumps(profile),
        },
        "tags": [{"key": "mlflow.data.context", "value": "input"}],
    }
    packed = base64.b85encode(zlib.compress(json.dumps(list(manifest.listed)).encode(), 6)).decode()
    if manifest.listed and len(packed) <= _LONGEST_LISTING:
        yield {"cloudml_objects": {"uri": manifest.uri, "objects": packed}}


def manifests_of(inputs: str, *, listed: bool = False) -> Mapping[str, InputManifest]:
    """The manifests among a run's inputs, by URI. What is none is left out: users add others.

    Their objects are read where they are to be ``listed``, as far as the bounds of a run allow.
    """
    packed: dict[str, Any] = {}
    found: dict[str, InputManifest] = {}
    for entry in _entries(inputs):
        if isinstance(beside := entry.get("cloudml_objects"), Mapping):
            packed[str(beside.get("uri"))] = beside.get("objects")
        manifest = _manifest(entry.get("dataset"))
        if manifest is not None:
            found.setdefault(manifest.uri, manifest)
    if not listed:
        return found
    budget = _Budget()
    return {
        uri: replace(one, listed=_listing(packed[uri], budget)) if uri in packed else one
        for uri, one in found.items()
    }


def _entries(inputs: str) -> Iterable[Mapping[str, Any]]:
    entries = json.loads(inputs or "[]")
    return [one for one in entries if isinstance(one, Mapping)]


def _manifest(dataset: Any) -> InputManifest | None:
    if not isinstance(dataset, Mapping) or dataset.get("source_type") != _SOURCE:
        return None
    try:
        uri = str(json.loads(dataset["source"])["uri"])
        profile = json.loads(dataset["profile"])
        return InputManifest(
            uri,
            str(profile["sha256"]),
            int(profile["objects"]),
            int(profile["bytes"]),
        )
    except _DAMAGE:
        return None


@dataclass
class _Budget:
    """What may still be read for the lists of one run."""

    characters: int = _MOST_INFLATED
    signs: int = _MOST_SIGNS


def _listing(packed: Any, budget: _Budget) -> Sequence[InputObject]:
    if budget.characters <= 0:
        return ()
    try:
        stream = zlib.decompressobj()
        text = stream.decompress(base64.b85decode(str(packed)), budget.characters)
        budget.characters -= len(text)
        budget.signs -= sum(map(text.count, _SIGNS))
        if budget.signs < 0:
            return ()
        return [
            InputObject(str(key), int(size), str(digest)) for key, size, digest in json.loads(text)
        ]
    except _DAMAGE:
        return ()


_DAMAGE = (KeyError, TypeError, ValueError, OverflowError, RecursionError, zlib.error)
_SIGNS = (b",", b"[", b"{")


def changed_objects(first: InputManifest, second: InputManifest) -> list[str]:
    """What changed between two manifests of a URI, in sentences."""
    if first.digest == second.digest:
        return []
    if not (first.listed or not first.objects) or not (second.listed or not second.objects):
        return [f"the objects of {first.uri} changed: {first.shown}, then {second.shown}"]
    before = {one.key: one for one in first.listed}
    after = {one.key: one for one in second.listed}
    sentences = [
        f"{_uri(first.uri, key)} {_change(before.get(key), after.get(key))}"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    ]
    more = len(sentences) - _MOST_NAMED
    return [*sentences[:_MOST_NAMED], *([f"and {more} more objects changed"] if more > 0 else [])]


def _change(before: InputObject | None, after: InputObject | None) -> str:
    if before is None:
        return "is new"
    if after is None:
        return "is gone"
    return f"changed: {before.size} bytes, then {after.size} bytes, with another digest"


def _uri(uri: str, key: str) -> str:
    bucket = uri.removeprefix("fds://").partition("/")[0]
    return f"fds://{bucket}/{key}"
