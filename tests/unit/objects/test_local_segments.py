"""What is particular to folders of uploads in segments: restarts, crashes, power failures, who
may read them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cloud_ml import failpoints
from cloud_ml.errors import Conflict, NotFound
from cloud_ml.objects.local.store import LocalObjectStore
from cloud_ml.objects.multipart import Declared
from cloud_ml.testing.objects.samples import BUCKET
from cloud_ml.testing.objects.segments import SEGMENTED as ID
from cloud_ml.testing.objects.segments import append


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "objects"


@pytest.fixture
def store(root: Path) -> LocalObjectStore:
    store = LocalObjectStore(root)
    store.create_bucket(BUCKET)
    store.multipart.begin(ID, BUCKET, "folder/a", Declared())
    append(store, 0, b"abc")
    return store


def content_of(root: Path) -> Path:
    return root / ".parts" / BUCKET / ID / "content"


def test_another_process_goes_on_with_what_was_received(
    store: LocalObjectStore, root: Path
) -> None:
    again = LocalObjectStore(root)
    append(again, 3, b"def")
    append(store, 6, b"ghi")  # which does not know the last segment's digest either
    assert LocalObjectStore(root).multipart.join(BUCKET, ID).size == 9
    assert store.get(BUCKET, "folder/a") == b"abcdefghi"
    assert list((root / ".parts" / BUCKET).iterdir()) == []
    assert list((root / ".uploads").iterdir()) == []


@pytest.mark.parametrize("damage", [b"", b"ab", b"abX"])
def test_what_a_power_failure_has_damaged_is_never_taken_for_received(
    store: LocalObjectStore, root: Path, damage: bytes
) -> None:
    content_of(root).write_bytes(damage)
    again = LocalObjectStore(root)
    with pytest.raises(Conflict, match="damaged"):
        append(again, 3, b"def")
    assert again.multipart.received(BUCKET, ID).size == 0
    append(again, 0, b"whole")
    again.multipart.join(BUCKET, ID)
    assert store.get(BUCKET, "folder/a") == b"whole"


def test_damaged_segments_do_not_become_an_object(store: LocalObjectStore, root: Path) -> None:
    content_of(root).write_bytes(b"abX")
    with pytest.raises(Conflict, match="damaged"):
        LocalObjectStore(root).multipart.join(BUCKET, ID)
    assert store.head(BUCKET, "folder/a") is None


def test_an_object_that_was_placed_before_a_crash_is_not_written_to(
    store: LocalObjectStore, root: Path
) -> None:
    """Between its placing and the end of its upload, one file has both names."""
    placed = root / BUCKET / "folder" / "a"
    placed.parent.mkdir(exist_ok=True)
    os.link(content_of(root), placed)
    again = LocalObjectStore(root)
    with pytest.raises(NotFound):
        append(again, 3, b"def")
    assert placed.read_bytes() == b"abc"
    assert list(again.multipart.all()) == []


def test_a_crash_before_the_placing_leaves_the_upload(store: LocalObjectStore, root: Path) -> None:
    os.link(content_of(root), root / ".uploads" / ("0" * 32))
    again = LocalObjectStore(root)  # sweeps what a crash has left
    assert list((root / ".uploads").iterdir()) == []
    append(again, 3, b"def")
    assert again.multipart.join(BUCKET, ID).size == 6


def test_only_the_server_reads_what_is_not_an_object_yet(
    store: LocalObjectStore, root: Path
) -> None:
    assert content_of(root).stat().st_mode & 0o777 == 0o600
    store.multipart.join(BUCKET, ID)
    assert (root / BUCKET / "folder" / "a").stat().st_nlink == 1


def test_an_object_of_segments_has_the_owner_and_mode_of_others(
    store: LocalObjectStore, root: Path
) -> None:
    store.multipart.join(BUCKET, ID)
    store.put(BUCKET, "folder/b", b"other")
    one, other = ((root / BUCKET / "folder" / name).stat() for name in "ab")
    assert (one.st_uid, one.st_gid, one.st_mode) == (other.st_uid, other.st_gid, other.st_mode)


def test_a_digest_that_is_known_is_not_computed_again(
    store: LocalObjectStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    pread = os.pread

    def counting(descriptor: int, size: int, offset: int) -> bytes:
        read.append(size)
        return pread(descriptor, size, offset)

    monkeypatch.setattr("cloud_ml.objects.local.segments.os.pread", counting)
    append(store, 3, b"def")
    store.multipart.join(BUCKET, ID)
    assert read == []


def test_a_segment_that_breaks_off_takes_no_room(store: LocalObjectStore, root: Path) -> None:
    with store.multipart.append(BUCKET, ID, 3) as segment:
        segment.write(bytes(range(256)) * 4096)
    assert content_of(root).stat().st_size == 3


def test_a_file_that_lost_bytes_is_not_filled_with_zeros(
    store: LocalObjectStore, root: Path
) -> None:
    """Although this process knows the digest of what was received."""
    os.truncate(content_of(root), 1)
    with pytest.raises(Conflict, match="damaged"):
        store.multipart.join(BUCKET, ID)


def kill_a_join(root: Path, point: str) -> None:
    """Another server joins the upload and is killed at ``point``."""
    program = (
        "import os, sys; from pathlib import Path; from cloud_ml import failpoints\n"
        "from cloud_ml.objects.local.store import LocalObjectStore\n"
        "failpoints.arm(os.environ)\n"
        "LocalObjectStore(Path(sys.argv[1])).multipart.join(*sys.argv[2:])\n"
    )
    orders = root.parent / "failpoints"
    orders.mkdir()
    (orders / point).touch()
    environment = {
        **os.environ,
        failpoints.FOLDER: str(orders),
        failpoints.ALLOWED: failpoints.WORD,
    }
    died = subprocess.run(
        [sys.executable, "-c", program, str(root), BUCKET, ID], env=environment, check=False
    )
    assert died.returncode == -signal.SIGKILL


def test_a_server_that_is_killed_while_it_joins_loses_nothing_at_another(
    store: LocalObjectStore, root: Path
) -> None:
    """The other server runs all the time, so nobody sweeps what the killed one has left."""
    kill_a_join(root, "objects.join.before")
    append(store, 3, b"def")
    assert store.multipart.join(BUCKET, ID).size == 6
    assert store.get(BUCKET, "folder/a") == b"abcdef"
    assert list((root / ".uploads").iterdir()) == []


def test_an_upload_that_is_given_up_after_a_killed_join_takes_no_room(
    store: LocalObjectStore, root: Path
) -> None:
    kill_a_join(root, "objects.join.before")
    store.multipart.drop(BUCKET, ID)
    assert list((root / ".uploads").iterdir()) == []


def test_an_object_that_a_killed_join_has_placed_is_not_written_to(
    store: LocalObjectStore, root: Path
) -> None:
    kill_a_join(root, "objects.join.after")
    with pytest.raises(NotFound):
        append(store, 3, b"def")
    assert store.get(BUCKET, "folder/a") == b"abc"
    assert list(store.multipart.all()) == []
