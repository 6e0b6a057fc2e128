from __future__ import annotations

import time
from pathlib import Path

import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.errors import AlreadyExists, InvalidRequest, NotFound, TransportError
from support.fake_api import START, FakeApi
from support.fake_server import FakeServer, Reply


def test_buckets(client: CloudMlClient) -> None:
    assert client.storage.create_bucket("models").name == "models"
    assert [bucket.name for bucket in client.storage.list_buckets()] == ["cloudml", "models"]
    with pytest.raises(InvalidRequest, match="bucket"):
        client.storage.create_bucket("NO")


def test_an_object_goes_up_and_comes_down(client: CloudMlClient, tmp_path: Path) -> None:
    file = tmp_path / "a.bin"
    file.write_bytes(bytes(300_000))
    uri = "fds://cloudml/data/ü +%41.bin"
    stored = client.storage.upload(file, uri)
    assert stored.size == 300_000
    assert client.storage.download(uri, tmp_path / "b.bin") == 300_000
    assert (tmp_path / "b.bin").read_bytes() == file.read_bytes()
    found = client.storage.head(uri)
    assert (found.size, found.modified, found.etag, found.uri) == (300_000, START, stored.etag, uri)
    client.storage.delete(uri)
    with pytest.raises(NotFound):
        client.storage.head(uri)


def test_only_if_absent(client: CloudMlClient, api: FakeApi) -> None:
    client.storage.upload(b"one", "fds://cloudml/a", only_if_absent=True)
    with pytest.raises(AlreadyExists):
        client.storage.upload(b"two", "fds://cloudml/a", only_if_absent=True)
    assert api.objects["fds://cloudml/a"] == b"one"


def test_lists(client: CloudMlClient, api: FakeApi) -> None:
    api.objects = {f"fds://cloudml/{key}": b"x" for key in ("a/1", "a/2", "b", "c/d/e")}
    assert [one.key for one in client.storage.list_objects("fds://cloudml/a/")] == ["a/1", "a/2"]
    (page,) = client.storage.pages("fds://cloudml", folders=True)
    assert ([one.key for one in page.objects], page.folders) == (["b"], ["a/", "c/"])


@pytest.mark.parametrize(
    "uri",
    ["fds://cloudml", "fds://cloudml/", "fds://cloudml/a/", "s3://cloudml/a", "a", "fds://c/../x"],
)
def test_what_names_no_object_is_refused_before_anything_is_sent(
    client: CloudMlClient, server: FakeServer, uri: str
) -> None:
    with pytest.raises(InvalidRequest):
        client.storage.upload(b"", uri)
    assert server.seen == []


def test_a_download_that_breaks_off_leaves_no_file(
    client: CloudMlClient, server: FakeServer, tmp_path: Path
) -> None:
    server.queued.append(Reply(200, [b"half"], cut=True))
    (tmp_path / "old").write_text("old")
    with pytest.raises(TransportError):
        client.storage.download("fds://cloudml/a", tmp_path / "old")
    assert [one.name for one in tmp_path.iterdir()] == ["old"]
    assert (tmp_path / "old").read_text() == "old"


def test_a_place_that_cannot_be_written_is_named(
    client: CloudMlClient, api: FakeApi, tmp_path: Path
) -> None:
    api.objects["fds://cloudml/a"] = b"x"
    with pytest.raises(InvalidRequest, match="none/a cannot be written"):
        client.storage.download("fds://cloudml/a", tmp_path / "none" / "a")


def test_a_link_that_would_never_work_is_not_made(
    client: CloudMlClient, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_000_000.5)
    week = client.storage.presign("fds://cloudml/a", expires_s=604_800)
    assert "X-Cloudml-Expires=1604800&" in week  # a second more would be beyond the limit
    assert "X-Cloudml-Expires=1000001&" in client.storage.presign("fds://cloudml/a", expires_s=0.1)
    for expires_s in (0, -1, 604_800.5, 2_592_000, float("inf"), float("nan")):
        with pytest.raises(InvalidRequest, match="above 0 and at most 604800 s"):
            client.storage.presign("fds://cloudml/a", expires_s=expires_s)
    month = client.storage.presign("fds://cloudml/a", expires_s=2_592_000, limit_s=2_592_000)
    assert "X-Cloudml-Expires=3592000&" in month
    assert server.seen == []
