"""How secrets lie in the database, and the file of the key that opens them."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from cloud_ml.domain.secrets import SEALING_KEY
from cloud_ml.domain.tenancy import SYSTEM
from cloud_ml.errors import Unavailable
from cloud_ml.sealing import KeyFile
from cloud_ml.state.memory import MemoryStateStore
from cloud_ml.usecases.sealing_key import ensure_sealing_key
from support.platform import ManualClock

VALUE = b"hunter2\0\xff"


@pytest.fixture
def file(tmp_path: Path) -> KeyFile:
    found = KeyFile(tmp_path / "sealing.key")
    found.make()
    return found


def test_a_value_comes_back_and_is_not_to_be_seen_meanwhile(file: KeyFile) -> None:
    sealed = file.seal(VALUE, "default/db")
    assert file.open(sealed, "default/db") == VALUE
    assert file.opens(sealed)
    assert VALUE not in base64.b64decode(sealed.rpartition(":")[2])
    assert sealed != file.seal(VALUE, "default/db"), "equal values must not look alike"
    assert file.path.stat().st_mode & 0o777 == 0o600


def test_a_value_that_was_moved_or_changed_does_not_open(file: KeyFile) -> None:
    sealed = file.seal(VALUE, "default/db")
    version, name, text = sealed.split(":")
    raw = bytearray(base64.b64decode(text))
    raw[-1] ^= 1
    damaged = [
        f"{version}:{name}:{base64.b64encode(raw).decode()}",
        f"{version}:{name}:",
        f"9:{name}:{text}",
        f"{version}:{name}:%%",
        "",
        ":",
        "::",
        text,
    ]
    for bad, context in [
        *((one, "default/db") for one in damaged),
        (sealed, "other/db"),
        (sealed, "default/dc"),
    ]:
        with pytest.raises(Unavailable) as refused:
            file.open(bad, context)
        assert "hunter2" not in refused.value.message


def test_a_key_that_is_replaced_still_opens_what_it_sealed(file: KeyFile) -> None:
    sealed = file.seal(VALUE, "default/db")
    newer = base64.b64encode(os.urandom(32)) + b"\n"
    file.path.write_bytes(newer + file.path.read_bytes())
    again = file.seal(VALUE, "default/db")
    assert file.open(sealed, "default/db") == file.open(again, "default/db") == VALUE
    file.path.write_bytes(newer)
    assert (file.opens(sealed), file.opens(again)) == (False, True)


@pytest.mark.parametrize(
    "content", [b"", b"# only a comment\n", b"short\n", b"\xff\xfe", base64.b64encode(b"x" * 31)]
)
def test_a_malformed_key_is_named_and_not_repeated(file: KeyFile, content: bytes) -> None:
    sealed = file.seal(VALUE, "default/db")
    file.path.write_bytes(content)
    with pytest.raises(Unavailable, match="malformed") as refused:
        file.seal(VALUE, "default/db")
    assert str(file.path) in refused.value.message
    assert "short" not in refused.value.message
    assert not file.opens(sealed)


def test_the_first_server_of_a_database_makes_the_key_and_no_other_does(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    store = MemoryStateStore(clock=clock)
    first, second = KeyFile(tmp_path / "first"), KeyFile(tmp_path / "second")
    ensure_sealing_key(first, store, clock)
    ensure_sealing_key(first, store, clock)
    assert caplog.text == ""
    ensure_sealing_key(second, store, clock)
    assert not second.path.exists()
    assert str(second.path) in caplog.text
    key = base64.b64encode(first.keys()[0].key).decode()
    assert key not in caplog.text + repr(store.find(SEALING_KEY, SYSTEM, "sealing-key")) + repr(
        first.keys()
    )
    sealed = first.seal(VALUE, "a/b")
    second.path.write_bytes(first.path.read_bytes())
    assert second.open(sealed, "a/b") == VALUE, "a key that is put back works at once"


def test_of_two_servers_that_start_at_once_one_makes_the_key(tmp_path: Path) -> None:
    clock = ManualClock()
    store = MemoryStateStore(clock=clock)
    faster, slower = KeyFile(tmp_path / "faster"), KeyFile(tmp_path / "slower")

    class Slow(KeyFile):
        def make(self):  # type: ignore[no-untyped-def]
            ensure_sealing_key(faster, store, clock)
            return super().make()

    ensure_sealing_key(Slow(slower.path), store, clock)
    assert faster.path.exists()
    assert not slower.path.exists()


def test_servers_that_start_at_once_with_one_file_keep_its_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    store = MemoryStateStore(clock=clock)
    file = KeyFile(tmp_path / "shared")

    class Slow(KeyFile):
        def make(self):  # type: ignore[no-untyped-def]
            ensure_sealing_key(file, store, clock)
            return super().make()

    ensure_sealing_key(Slow(file.path), store, clock)
    found = store.find(SEALING_KEY, SYSTEM, "sealing-key")
    assert found is not None
    (key,) = file.keys()
    assert key.id == found.spec.id
    assert caplog.text == ""


def test_a_server_starts_where_the_key_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    ensure_sealing_key(KeyFile(tmp_path / "absent" / "key"), MemoryStateStore(clock=clock), clock)
    assert "secrets cannot be used" in caplog.text


def test_a_key_that_a_crash_left_under_another_name_is_removed(tmp_path: Path) -> None:
    clock = ManualClock()
    of_nobody = 2**22 + 1
    (tmp_path / f".sealing.key.{of_nobody}.new").write_text("a secret")
    (tmp_path / f".sealing.key.{os.getppid()}.new").write_text("of another server that starts")
    ensure_sealing_key(KeyFile(tmp_path / "sealing.key"), MemoryStateStore(clock=clock), clock)
    assert sorted(tmp_path.iterdir()) == [
        tmp_path / f".sealing.key.{os.getppid()}.new",
        tmp_path / "sealing.key",
    ]
