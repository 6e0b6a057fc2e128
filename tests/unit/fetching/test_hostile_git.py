"""Repositories made to harm: small packs with large files, many messages, links that lead out."""

from __future__ import annotations

import io
import random
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_ml.fetching.program import fetch
from cloud_ml.fetching.task import FetchFailed, Task
from cloud_ml.launcher.archives import ArchiveError, unpack
from support.git_server import GitServer, serving_git

_LIMIT = 1 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GitServer]:
    with serving_git(tmp_path_factory.mktemp("hostile")) as server:
        yield server


def _fetched(server: GitServer, folder: Path, name: str, limit: int = _LIMIT) -> io.BytesIO:
    out = io.BytesIO()
    fetch(
        Task(
            server.url(f"/{name}/.git"), allow=("127.0.0.1",), folder=str(folder), size_limit=limit
        ),
        out,
    )
    out.seek(0)
    return out


def _disk(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*"))


def test_a_small_pack_of_large_files_takes_no_more_disk_than_allowed(
    server: GitServer, tmp_path: Path
) -> None:
    """Forty files that differ in a line are one file and 39 short deltas on the wire, and stay
    so on the disk.
    """
    block = random.Random(7).randbytes(24 << 10).hex() * 8
    server.commit("deltas", {f"{number}.txt": f"{block}\n{number}" for number in range(40)})
    with pytest.raises(FetchFailed, match="it has more than"):
        _fetched(server, tmp_path, "deltas")
    assert _disk(tmp_path) < 2 * _LIMIT


def test_many_messages_of_git_hold_up_nothing(server: GitServer, tmp_path: Path) -> None:
    """Git writes a line for each bad attribute: more than a pipe holds, while the archive was
    read first.
    """
    server.commit("messages", {".gitattributes": "x -!bad\n" * 5000, "task.py": "print(1)"})
    with tarfile.open(fileobj=_fetched(server, tmp_path, "messages")) as archive:
        assert "trainer/task.py" in archive.getnames()
    assert (tmp_path / "said").stat().st_size > 64 << 10, "the control: there were that many"


def test_attributes_of_a_repository_run_nothing(
    server: GitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They can name a filter that the machine's own settings define, as those of Git LFS do."""
    ran, settings = tmp_path / "ran", tmp_path / "gitconfig"
    settings.write_text(
        f'[filter "evil"]\n\tsmudge = touch {ran} && cat\n[filter "lfs"]\n\tsmudge = touch '
        f"{ran} && cat\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    rules = "*.py filter=evil diff=evil export-subst\n*.bin filter=lfs\n"
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    server.commit("rules", {".gitattributes": rules, "task.py": "print(1)", "model.bin": pointer})
    with tarfile.open(fileobj=_fetched(server, tmp_path, "rules")) as archive:
        kept = archive.extractfile("trainer/model.bin")
        assert kept is not None
        assert kept.read().decode() == pointer
    assert not ran.exists()


@pytest.mark.parametrize("target", ["/etc/passwd", "../../../etc/passwd", "../.."])
def test_a_link_that_leads_out_is_refused(server: GitServer, tmp_path: Path, target: str) -> None:
    name = f"link{len(target)}"
    (server.root / name).mkdir()
    (server.root / name / "data").symlink_to(target)
    server.commit(name, {"task.py": "print(1)"})
    file = tmp_path / "trainer.tar"
    file.write_bytes(_fetched(server, tmp_path, name).getvalue())
    with pytest.raises(ArchiveError):
        unpack(str(file), str(tmp_path / "out"), strip=True)
