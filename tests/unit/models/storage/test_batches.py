"""Many objects in one body: written and read back, however it is cut."""

from __future__ import annotations

import hashlib

import pytest

from cloud_ml.errors import InvalidRequest
from cloud_ml.models.storage.batches import LINE_BYTES, Entry, EntryReader


def entry(key: str, content: bytes) -> Entry:
    return Entry(key, len(content), hashlib.sha256(content).hexdigest())


OBJECTS = {"a": b"one", "empty": b"", "é/\n{}": b'{"key": "x"}\n' * 3, "k" * 1024: b"\n"}


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100, 10_000])
def test_what_is_written_is_read_however_it_is_cut(size: int) -> None:
    body = b"".join(entry(key, content).line() + content for key, content in OBJECTS.items())
    reader, found = EntryReader(), dict[str, bytes]()
    for at in range(0, len(body), size):
        for read in reader.feed(body[at : at + size]):
            if isinstance(read, Entry):
                key = read.key
                found[key] = b""
            else:
                found[key] += read
    reader.end()
    assert found == OBJECTS


def test_an_error_has_no_bytes() -> None:
    body = (
        Entry("gone", error={"code": "not_found", "message": "no"}).line()
        + entry("a", b"x").line()
        + b"x"
    )
    gone, there, content = EntryReader().feed(body)
    assert isinstance(gone, Entry)
    assert (gone.key, gone.error) == ("gone", {"code": "not_found", "message": "no"})
    assert (there, content) == (entry("a", b"x"), b"x")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"hello\n", "body"),
        (b"[]\n", "body"),
        (b"\n", "body"),
        (b'{"key": 1, "size": 1, "sha256": "' + b"0" * 64 + b'"}\n', "body"),
        (b'{"key": "a", "size": -1, "sha256": "' + b"0" * 64 + b'"}\n', "size"),
        (b'{"key": "a", "size": true, "sha256": "' + b"0" * 64 + b'"}\n', "size"),
        (b'{"key": "a", "size": 1e3, "sha256": "' + b"0" * 64 + b'"}\n', "size"),
        (b'{"key": "a", "size": 1, "sha256": "x"}\n', "sha256"),
        (b"[" * 10_000 + b"\n", "body"),
        (b"x" * (LINE_BYTES + 1), "body"),
    ],
)
def test_what_is_none_is_refused_by_its_field(body: bytes, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        list(EntryReader().feed(body))
    assert refused.value.field == field


@pytest.mark.parametrize("cut", [1, 10, -1])
def test_a_body_that_was_cut_off_is_refused(cut: int) -> None:
    reader = EntryReader()
    list(reader.feed((entry("a", b"content").line() + b"content")[:cut]))
    with pytest.raises(InvalidRequest, match="middle of an object"):
        reader.end()
