"""A bucket is a job's playground: what it may plant there, and that it does not work.

Each attack is first shown to work on code that opens paths.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from cloud_ml.errors import CloudMlError, Conflict, InvalidRequest, NotFound
from cloud_ml.objects.info import Amount
from cloud_ml.objects.local import LocalObjectStore, emptying, listing, tree
from cloud_ml.objects.local.transfer import object_info

BUCKET = "data"


@pytest.fixture
def store(tmp_path: Path) -> LocalObjectStore:
    store = LocalObjectStore(tmp_path / "objects")
    store.create_bucket(BUCKET)
    return store


@pytest.fixture
def bucket(store: LocalObjectStore) -> Path:
    return store.folder(BUCKET)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_bytes(b"secret")
    return folder


def test_a_link_to_a_file_is_no_object(
    store: LocalObjectStore, bucket: Path, outside: Path
) -> None:
    (bucket / "link").symlink_to(outside / "secret")
    assert (bucket / "link").read_bytes() == b"secret"

    assert store.head(BUCKET, "link") is None
    with pytest.raises(NotFound):
        store.read(BUCKET, "link")
    assert store.delete(BUCKET, "link") is False
    assert store.list(BUCKET).objects == []
    assert (bucket / "link").is_symlink()


def test_a_link_to_a_folder_is_no_folder(
    store: LocalObjectStore, bucket: Path, outside: Path
) -> None:
    (bucket / "link").symlink_to(outside)
    (bucket / "link" / "planted").write_bytes(b"x")
    assert (outside / "planted").exists()
    (outside / "planted").unlink()

    assert store.head(BUCKET, "link/secret") is None
    assert store.delete(BUCKET, "link/secret") is False
    with pytest.raises(NotFound):
        store.read(BUCKET, "link/secret")
    with pytest.raises(Conflict, match="no folder"):
        store.put(BUCKET, "link/planted", b"x")
    with pytest.raises(Conflict, match="no folder"):
        store.put(BUCKET, "link/sub/planted", b"x")
    for prefix in ("", "link/", "link/sec"):
        for delimiter in (False, True):
            page = store.list(BUCKET, prefix, delimiter=delimiter)
            assert (page.objects, page.folders) == ([], [])
    assert [path.name for path in outside.iterdir()] == ["secret"]


def test_a_link_put_in_place_during_an_upload(
    store: LocalObjectStore, bucket: Path, outside: Path
) -> None:
    with store.writer(BUCKET, "folder/secret") as upload:
        upload.write(b"planted")
        (bucket / "folder").symlink_to(outside)
        assert (bucket / "folder" / "secret").read_bytes() == b"secret"
        with pytest.raises(Conflict, match="no folder"):
            upload.commit()
    assert (outside / "secret").read_bytes() == b"secret"


def test_an_upload_replaces_a_link_and_does_not_follow_it(
    store: LocalObjectStore, bucket: Path, outside: Path
) -> None:
    (bucket / "link").symlink_to(outside / "other")
    (bucket / "link").write_bytes(b"naive")
    assert (outside / "other").read_bytes() == b"naive"

    with pytest.raises(Conflict, match="a link or a pipe"):
        store.put(BUCKET, "link", b"mine", only_if_absent=True)
    store.put(BUCKET, "link", b"mine")
    assert (outside / "other").read_bytes() == b"naive"
    assert store.get(BUCKET, "link") == b"mine"
    assert not (bucket / "link").is_symlink()


def test_an_upload_does_not_write_into_a_second_name_of_a_file(
    store: LocalObjectStore, bucket: Path, outside: Path
) -> None:
    (bucket / "name").hardlink_to(outside / "secret")
    with (bucket / "name").open("r+b") as file:
        file.write(b"SECRET")
    assert (outside / "secret").read_bytes() == b"SECRET"

    store.put(BUCKET, "name", b"mine")
    assert (outside / "secret").read_bytes() == b"SECRET"
    assert store.get(BUCKET, "name") == b"mine"


def test_pipes_and_sockets_are_no_objects_and_block_nobody(
    store: LocalObjectStore, bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(bucket / "pipe")
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run(["cat", bucket / "pipe"], timeout=0.2, check=False)
    monkeypatch.chdir(bucket)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as plug:
        plug.bind("socket")
        for name in ("pipe", "socket"):
            assert (bucket / name).exists()
            assert store.head(BUCKET, name) is None
            with pytest.raises(NotFound):
                store.read(BUCKET, name)
            assert store.delete(BUCKET, name) is False
        assert store.list(BUCKET).objects == []


def test_a_pipe_that_takes_the_place_of_a_file_just_before_it_is_opened(bucket: Path) -> None:
    os.mkfifo(bucket / "pipe")
    with tree.opened_path(bucket) as folder:
        assert tree.open_file(folder, b"pipe") is None


@pytest.mark.root
def test_devices_are_no_objects(store: LocalObjectStore, bucket: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make device nodes")
    try:
        os.mknod(bucket / "zero", 0o20666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("this root cannot make device nodes")
    assert store.head(BUCKET, "zero") is None
    with pytest.raises(NotFound):
        store.read(BUCKET, "zero")
    assert store.list(BUCKET).objects == []


def exchange(first: Path, second: Path) -> None:
    """Swap what two names stand for, in one step that nobody can see the middle of."""
    at_cwd, in_exchange = -100, 2
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(at_cwd, os.fsencode(first), at_cwd, os.fsencode(second), in_exchange):
        raise OSError(ctypes.get_errno(), "renameat2")


def test_a_folder_that_turns_into_a_link_again_and_again(
    store: LocalObjectStore, bucket: Path, outside: Path
) -> None:
    """A job swaps a folder and a link as fast as it can while the server reads, writes and
    lists.
    """
    (bucket / "turn").mkdir()
    (bucket / "turn" / "secret").write_bytes(b"harmless")
    (bucket / "other").symlink_to(outside)
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            exchange(bucket / "turn", bucket / "other")

    seen: Counter[bytes | str] = Counter()
    naive: Counter[bytes] = Counter()
    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        while len(naive) < 2 or seen.total() < 300:
            naive[(bucket / "turn" / "secret").read_bytes()] += 1
            try:
                seen[store.get(BUCKET, "turn/secret")] += 1
                seen.update(info.key for info in store.list(BUCKET, "turn/").objects)
                store.put(BUCKET, "turn/planted", b"x")
            except (NotFound, Conflict):
                continue
    finally:
        done.set()
        swapping.join()
    assert naive[b"secret"], "the attack is broken: naive code never fell for it"
    assert set(seen) == {b"harmless", "turn/secret", "turn/planted"}
    assert [path.name for path in outside.iterdir()] == ["secret"]


def test_names_that_can_be_no_key_are_not_listed(store: LocalObjectStore, bucket: Path) -> None:
    for name in (b"caf\xe9", b"line\nfeed", b"back\\slash", b"fine"):
        Path(os.fsdecode(os.fsencode(bucket) + b"/" + name)).write_bytes(b"x")
    (bucket / "bad\nfolder").mkdir()
    (bucket / "bad\nfolder" / "a").write_bytes(b"x")
    assert len(list(bucket.iterdir())) == 5
    page = store.list(BUCKET, delimiter=True)
    assert ([info.key for info in page.objects], page.folders) == (["fine"], [])
    assert [info.key for info in store.list(BUCKET).objects] == ["fine"]


@pytest.fixture
def nested(bucket: Path) -> Iterator[None]:
    """Folders so deep that no path can name the last one, with a file at the bottom."""
    folder = os.open(bucket, os.O_RDONLY)
    name = "d" * 20
    for _ in range(1200):
        os.mkdir(name, dir_fd=folder)
        folder, upper = os.open(name, os.O_RDONLY, dir_fd=folder), folder
        os.close(upper)
    os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
    os.close(folder)
    yield
    subprocess.run(["rm", "-r", bucket / name], check=True)  # pytest cannot clean up so deep


@pytest.mark.usefixtures("nested")
def test_a_tree_of_any_depth_is_listed_with_few_descriptors(
    store: LocalObjectStore, bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        emptying, "_DEPTH", 64
    )  # each level is opened from the top: half a million calls otherwise
    with pytest.raises((RecursionError, OSError)):
        list(recursive(bucket))
    with tree.opened_path(bucket) as folder:
        before = descriptors()
        assert (
            list(listing.walk(folder, "", "", deep=True)) == []
        )  # the file lies deeper than a key can
        assert descriptors() == before
    assert store.list(BUCKET, delimiter=True).folders == []
    with pytest.raises(Conflict, match="too deep"):
        store.delete_bucket(BUCKET)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def recursive(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        yield path
        if path.is_dir():
            yield from recursive(path)


@pytest.mark.parametrize("batch", [1, 2, 3, 10_000])
@pytest.mark.parametrize("deep", [False, True])
def test_a_folder_is_read_in_batches_without_loss(
    store: LocalObjectStore, bucket: Path, batch: int, deep: bool
) -> None:
    for number in range(7):
        (bucket / f"empty{number}").mkdir()
        store.put(BUCKET, f"f{number}/x", b"")
        store.put(BUCKET, f"g{number}", b"")
    folder = os.open(bucket, os.O_RDONLY)
    try:
        found = [name for name, _ in listing.walk(folder, "", "f2/x", deep=deep, batch=batch)]
    finally:
        os.close(folder)
    folders = [f"f{number}/x" if deep else f"f{number}/" for number in range(3, 7)]
    assert found == folders + [f"g{number}" for number in range(7)]


@pytest.mark.parametrize(("seconds", "year"), [(2**62, 9999), (-(2**62), 1970), (0, 1970)])
def test_impossible_times_are_bent_into_the_calendar(seconds: int, year: int) -> None:
    status = SimpleNamespace(st_size=1, st_mtime=float(seconds), st_mtime_ns=seconds, st_ino=1)
    assert object_info(BUCKET, "a", cast("os.stat_result", status)).modified.year == year


def test_a_file_that_is_cut_short_while_it_is_read(store: LocalObjectStore, bucket: Path) -> None:
    (bucket / "log").write_bytes(b"x" * 600_000)
    _, chunks = store.read(BUCKET, "log")
    next(chunks)
    os.truncate(bucket / "log", 10)
    with pytest.raises(CloudMlError, match="cut short") as caught:
        list(chunks)
    assert caught.value.code == "unavailable"


def test_a_file_that_grows_is_read_to_the_size_that_was_told(
    store: LocalObjectStore, bucket: Path
) -> None:
    (bucket / "log").write_bytes(b"x" * 10)
    info, chunks = store.read(BUCKET, "log")
    with (bucket / "log").open("ab") as log:
        log.write(b"more")
    assert len(b"".join(chunks)) == info.size == 10


def plant_rubbish(bucket: Path, outside: Path) -> None:
    (bucket / "empty" / "deeper").mkdir(parents=True)
    (bucket / "empty" / "link").symlink_to(outside)
    os.mkfifo(bucket / "pipe")


def test_rubbish_does_not_keep_a_bucket_and_links_are_not_followed(
    store: LocalObjectStore, bucket: Path, outside: Path
) -> None:
    plant_rubbish(bucket, outside)
    with pytest.raises(OSError, match="not empty"):
        bucket.rmdir()
    store.delete_bucket(BUCKET)
    assert not bucket.exists()
    assert (outside / "secret").exists()


def plant_what_no_key_names(bucket: Path) -> None:
    for name in (b"line\nfeed", b"bad\xff", b"back\\slash"):
        (bucket / os.fsdecode(name)).write_bytes(b"somebody's work")
    (bucket / "closed").mkdir()
    (bucket / "closed" / "file").touch()
    (bucket / "closed").chmod(0)
    here = os.open(bucket, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


def test_files_that_no_key_names_count_to_what_is_stored(
    store: LocalObjectStore, bucket: Path
) -> None:
    """A job could store any amount under a name with a newline, and no quota would see it."""
    store.put(BUCKET, "folder/object", b"12345")
    for path in (b"line\nfeed", b"bad\xff", b"folder/back\\slash", b"bad\xfe/inside"):
        place = bucket / os.fsdecode(path)
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(b"x" * 100)
    (bucket / os.fsdecode(b"bad\xff-link")).symlink_to("line\nfeed")
    (bucket / "folder-2").mkdir()
    assert store.amount(BUCKET) == Amount(5, 405)
    assert store.amount(BUCKET, "folder/") == Amount(2, 105)
    assert store.amount(BUCKET, "fol") == Amount(2, 105)
    assert store.amount(BUCKET, "other/") == Amount(0, 0)


def test_files_that_no_key_names_are_listed_and_removed_one_by_one(
    store: LocalObjectStore, bucket: Path
) -> None:
    store.put(BUCKET, "folder/object", b"12345")
    paths = [b"bad\xff", b"folder/back\\slash", b"line\nfeed", b"z\xfe/inside"]
    for path in paths:
        place = bucket / os.fsdecode(path)
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(b"x")
    (bucket / os.fsdecode(b"link\xff")).symlink_to("line\nfeed")
    assert [one.path for one in store.unnameable(BUCKET)] == paths
    assert [one.path for one in store.unnameable(BUCKET, deep=False)] == [paths[0], paths[2]]
    assert [one.path for one in store.unnameable(BUCKET, b"folder/", deep=False)] == [paths[1]]
    assert len(store.unnameable(BUCKET, limit=2)) == 2
    assert store.delete_unnameable(BUCKET, b"link\xff") is False
    for path in paths:
        assert store.delete_unnameable(BUCKET, path) is True
        assert store.delete_unnameable(BUCKET, path) is False
    assert sorted(os.fsencode(each.name) for each in bucket.iterdir()) == [b"folder", b"link\xff"]


@pytest.mark.parametrize(
    "path",
    [b"folder/object", b"../outside/bad\xff", b"/etc/bad\xff", b"a//bad\xff", b"bad\xff\0", b""],
)
def test_what_is_removed_by_its_escaped_name_is_no_object_and_lies_in_the_bucket(
    store: LocalObjectStore, bucket: Path, outside: Path, path: bytes
) -> None:
    store.put(BUCKET, "folder/object", b"12345")
    (outside / os.fsdecode(b"bad\xff")).write_bytes(b"theirs")
    (bucket / "up").symlink_to(outside)
    with pytest.raises(InvalidRequest):
        store.delete_unnameable(BUCKET, path)
    assert store.delete_unnameable(BUCKET, b"up/bad\xff") is False
    assert (outside / os.fsdecode(b"bad\xff")).exists()
    assert store.head(BUCKET, "folder/object") is not None


def test_counting_what_no_key_names_ends_when_it_is_told_to(
    store: LocalObjectStore, bucket: Path
) -> None:
    plant_what_no_key_names(bucket)
    questions = itertools.count()
    found = store.amount(BUCKET, stop=lambda: next(questions) > 20)
    assert not found.complete
    assert next(questions) < 30
    store.delete_bucket(BUCKET, force=True)
    store.reclaim()


def test_nothing_that_a_job_leaves_keeps_a_bucket_that_is_removed_with_force(
    store: LocalObjectStore, bucket: Path, outside: Path
) -> None:
    plant_rubbish(bucket, outside)
    plant_what_no_key_names(bucket)
    store.delete_bucket(BUCKET, force=True)
    assert not bucket.exists()
    store.reclaim()
    assert list((bucket.parent / ".removed").iterdir()) == []
    assert (outside / "secret").exists()


def test_a_folder_that_is_removed_takes_what_is_no_object_with_it_and_follows_no_link(
    store: LocalObjectStore, bucket: Path, outside: Path
) -> None:
    (bucket / "folder").mkdir()
    plant_rubbish(bucket / "folder", outside)
    plant_what_no_key_names(bucket / "folder")
    store.delete_folder(BUCKET, "folder")
    assert list(bucket.iterdir()) == []
    (bucket / "link").symlink_to(outside)
    store.delete_folder(BUCKET, "link/secret")  # there is no such folder
    assert (outside / "secret").exists()
    store.delete_folder(BUCKET, "link")
    assert list(bucket.iterdir()) == []
    assert (outside / "secret").exists()


def test_a_job_that_writes_on_keeps_nothing_either(store: LocalObjectStore, bucket: Path) -> None:
    with subprocess.Popen(
        ["sh", "-c", "i=0; while mkdir -p $i/x && touch $i/y; do i=$((i+1)); done 2>/dev/null"],
        cwd=bucket,
    ) as writer:
        try:
            while not (bucket / "5").exists():
                assert writer.poll() is None
            store.delete_bucket(BUCKET, force=True)
            assert not bucket.exists()
        finally:
            writer.kill()
    store.reclaim()
    assert list((bucket.parent / ".removed").iterdir()) == []


def test_a_file_that_no_key_can_name_keeps_its_bucket(
    store: LocalObjectStore, bucket: Path
) -> None:
    (bucket / "line\nfeed").write_bytes(b"somebody's work")
    with pytest.raises(Conflict, match="holds a file"):
        store.delete_bucket(BUCKET)
    assert (bucket / "line\nfeed").read_bytes() == b"somebody's work"


@pytest.mark.parametrize(
    "use",
    [
        lambda store: store.get("evil-link", "secret"),
        lambda store: store.put("evil-link", "planted", b""),
        lambda store: store.list("evil-link"),
        lambda store: store.folder("evil-link"),
        lambda store: store.folder(".uploads"),
        lambda store: store.folder(".."),
    ],
)
def test_what_is_no_bucket_is_not_found(
    store: LocalObjectStore, bucket: Path, outside: Path, use: Callable[[LocalObjectStore], object]
) -> None:
    (bucket.parent / "evil-link").symlink_to(outside)
    with pytest.raises(NotFound):
        use(store)
    assert list(store.buckets()) == [BUCKET]
