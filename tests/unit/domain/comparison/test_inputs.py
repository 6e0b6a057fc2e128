from __future__ import annotations

import base64
import json
import tracemalloc
import zlib
from collections.abc import Iterable
from dataclasses import replace

import pytest

from cloud_ml.domain.comparison.inputs import (
    MOST_LISTED,
    InputManifest,
    InputObject,
    ManifestBuilder,
    changed_objects,
    entries_of,
    manifests_of,
)

URI = "fds://b/set"


def manifest(objects: Iterable[tuple[str, int, str]]) -> InputManifest:
    builder = ManifestBuilder(URI)
    for one in objects:
        builder.add(InputObject(*one))
    return builder.built()


def test_a_manifest_is_read_back_from_the_data_sets_of_a_run() -> None:
    made = manifest([("set/a", 1, "d1"), ("set/ü", 2, "etag:e")])
    others = [{"dataset": {"name": "x", "source_type": "local"}}, {"model_input": {}}, 5]
    inputs = json.dumps([*others, *entries_of(made)])
    assert manifests_of(inputs, listed=True) == {URI: made}
    assert manifests_of(inputs) == {URI: replace(made, listed=())}
    assert made.shown.startswith("2 objects, 3 bytes, ")
    assert manifest([]).shown == "nothing"


@pytest.mark.parametrize(
    "dataset",
    [
        {"source_type": "cloudml"},
        {"source_type": "cloudml", "source": "no json", "profile": "{}"},
        {"source_type": "cloudml", "source": "{}", "profile": "{}"},
        {"source_type": "cloudml", "source": '{"uri": 1}', "profile": '{"objects": "x"}'},
        {"source_type": "cloudml", "source": [], "profile": None},
        {
            "source_type": "cloudml",
            "source": '{"uri": 1}',
            "profile": '{"sha256": "", "objects": 1e999, "bytes": 1}',
        },
    ],
)
def test_data_sets_of_users_that_are_none_of_ours_are_left_out(dataset: object) -> None:
    assert manifests_of(json.dumps([{"dataset": dataset}])) == {}


def packed(text: str) -> str:
    return base64.b85encode(zlib.compress(text.encode(), 9)).decode()


@pytest.mark.parametrize(
    "packed", ["", "!!", 7, None, "VPa!sE_qk", packed('[["a", 1e999, "d"]]'), packed("{}")]
)
def test_a_broken_list_of_objects_is_no_list(packed: object) -> None:
    entries = list(entries_of(manifest([("set/a", 1, "d1")])))
    entries[1]["cloudml_objects"]["objects"] = packed
    assert not manifests_of(json.dumps(entries), listed=True)[URI].listed


@pytest.mark.parametrize("value", ['["a",1,"b"]', "[]", "0", '"a"', "{}"])
def test_lists_that_users_make_to_take_memory_are_not_read(value: str) -> None:
    """38 kB of a list took half a gigabyte, and a run may have 26 such lists."""
    (dataset, beside) = entries_of(manifest([("set/a", 1, "d1")]))
    beside["cloudml_objects"]["objects"] = packed(f"[{','.join([value] * 1_000_000)}]")
    tracemalloc.start()
    try:
        found = manifests_of(json.dumps([dataset, beside]), listed=True)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert not found[URI].listed
    assert most < 2 * 16_000_000 + 2_000_000


def test_the_lists_of_a_run_have_one_bound_together() -> None:
    many = [(f"set/{number:06}", 1, "d") for number in range(MOST_LISTED)]
    entries = []
    for number in range(20):
        made = replace(manifest(many), uri=f"fds://b/{number}")
        entries += entries_of(made)
    found = manifests_of(json.dumps(entries), listed=True)
    assert len(found) == 20
    assert found["fds://b/0"].listed == [InputObject(*one) for one in many]
    assert sum(len(one.listed) for one in found.values()) <= 100_000


def test_changes_are_named_object_by_object() -> None:
    first = manifest([("set/a", 1, "d1"), ("set/b", 1, "d2"), ("set/c", 1, "d3")])
    second = manifest([("set/a", 1, "d1"), ("set/b", 2, "d9"), ("set/d", 1, "d4")])
    assert changed_objects(first, first) == []
    assert changed_objects(first, second) == [
        "fds://b/set/b changed: 1 bytes, then 2 bytes, with another digest",
        "fds://b/set/c is gone",
        "fds://b/set/d is new",
    ]
    assert (
        len(changed_objects(manifest([]), manifest([(f"set/{n:03}", 1, "") for n in range(99)])))
        == 6
    )


def test_very_many_objects_have_one_digest() -> None:
    many = [(f"set/{number:06}", 1, "d") for number in range(MOST_LISTED + 1)]
    first, second = manifest(many), manifest([*many[:-1], ("set/z", 1, "e")])
    assert (first.listed, first.objects) == ([], MOST_LISTED + 1)
    assert len(list(entries_of(first))) == 1
    (change,) = changed_objects(first, second)
    assert change.startswith("the objects of fds://b/set changed: 10001 objects")
