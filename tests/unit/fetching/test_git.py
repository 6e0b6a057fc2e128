"""Repositories: fetched by git from a judged address, without redirects, hooks, filters or
settings of others.
"""

from __future__ import annotations

import io
import socket
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cloud_ml.fetching.program import fetch
from cloud_ml.fetching.task import FetchFailed, Task
from support.git_server import GitServer, git, serving_git


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GitServer]:
    with serving_git(tmp_path_factory.mktemp("repositories")) as server:
        server.commit(
            "ours", {"train.py": "print(1)", "models/churn/task.py": "print('old')"}, tag="v1"
        )
        server.commit("ours", {"models/churn/task.py": "print('new')"})
        yield server


def files(server: GitServer, folder: Path, path: str = "/ours/.git", **more: Any) -> dict[str, str]:
    out = io.BytesIO()
    resolve = more.pop("resolve", None)
    url = more.pop("url", server.url(path))
    task = Task(url, **{"allow": ("127.0.0.1",), "folder": str(folder), "name": "ours", **more})
    size = fetch(task, out, **({"resolve": resolve} if resolve else {}))
    assert size == len(out.getvalue())
    out.seek(0)
    with tarfile.open(fileobj=out) as archive:
        members = [one for one in archive.getmembers() if one.isfile()]
        return {one.name: archive.extractfile(one).read().decode() for one in members}  # type: ignore[union-attr]


def refused(server: GitServer, folder: Path, path: str = "/ours/.git", **more: Any) -> str:
    with pytest.raises(FetchFailed) as caught:
        files(server, folder, path, **more)
    return str(caught.value)


def test_the_default_branch_a_tag_and_a_commit(server: GitServer, tmp_path: Path) -> None:
    commit = git(server.root / "ours", "rev-parse", "v1").strip()
    for number, (ref, text) in enumerate(
        [("", "new"), ("main", "new"), ("v1", "old"), (commit, "old")]
    ):
        (tmp_path / str(number)).mkdir()
        found = files(server, tmp_path / str(number), ref=ref)
        assert found == {
            "ours/train.py": "print(1)",
            "ours/models/churn/task.py": f"print('{text}')",
        }


def test_a_folder_of_it(server: GitServer, tmp_path: Path) -> None:
    assert files(server, tmp_path, subdirectory="models/churn") == {"churn/task.py": "print('new')"}


def test_what_is_not_there_is_named(server: GitServer, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    assert "the commit v9 cannot be fetched" in refused(server, tmp_path / "a", ref="v9")
    assert (
        refused(server, tmp_path / "b", subdirectory="absent") == "there is no folder absent in it"
    )
    assert "does not exist, or not everybody may read it" in refused(
        server, tmp_path / "c", "/absent"
    )


def test_a_repository_that_has_moved_is_followed(server: GitServer, tmp_path: Path) -> None:
    server.redirects["/old/info/refs"] = server.url("/ours/.git/info/refs")
    assert "ours/train.py" in files(server, tmp_path, "/old")


@pytest.mark.parametrize(
    "target",
    ["http://169.254.169.254/info/refs", "http://[::1]:80/info/refs", "http://10.0.0.1/info/refs"],
)
def test_no_redirect_leads_inside(server: GitServer, tmp_path: Path, target: str) -> None:
    server.redirects["/inside/info/refs"] = target
    assert "the operator has to allow it" in refused(server, tmp_path, "/inside")


def test_loopback_is_refused_unless_it_is_allowed(server: GitServer, tmp_path: Path) -> None:
    before = len(server.seen)
    assert "the operator has to allow it" in refused(server, tmp_path, allow=())
    assert len(server.seen) == before


def test_git_connects_to_the_address_that_was_judged(server: GitServer, tmp_path: Path) -> None:
    """The name leads nowhere for anybody else: it is looked up once, by us."""

    def resolve(host: str, port: int) -> list[Any]:
        assert host == "git.invalid"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    url = f"http://git.invalid:{server.server_port}/ours/.git"
    assert "ours/train.py" in files(server, tmp_path, url=url, resolve=resolve)


def test_git_follows_no_redirect_of_its_own(server: GitServer, tmp_path: Path) -> None:
    """A server may answer us well, and lead git to another place a moment later."""
    server.redirects["/turns/git-upload-pack"] = server.url("/ours/.git/git-upload-pack")
    (server.root / "turns").symlink_to(server.root / "ours" / ".git")
    assert "cannot be fetched" in refused(server, tmp_path, "/turns")
    assert "/ours/.git/git-upload-pack" not in server.seen[-1]


def test_a_repository_that_is_too_large(server: GitServer, tmp_path: Path) -> None:
    assert refused(server, tmp_path, size_limit=1000) == "it has more than 1000 bytes"


def test_an_ordinary_page_is_no_repository(server: GitServer, tmp_path: Path) -> None:
    server.redirects["/page/info/refs"] = server.url("/ours/.git/HEAD")
    assert "is not a Git repository" in refused(server, tmp_path, "/page")
