from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from cloud_ml.domain.records import Summary
from cloud_ml.errors import AlreadyExists, InvalidRequest, NotFound, Unauthenticated
from cloud_ml.state.base import Once, Page
from support.platform import Served


def put(
    served: Served, key: str, content: bytes, *, bucket: str = "cloudml", once: Once | None = None
) -> None:
    with served.platform.storage.upload("default", bucket, key) as upload:
        upload.write(content)
        upload.finish(once)


def test_buckets_belong_to_organisations(served: Served) -> None:
    storage = served.platform.storage
    storage.create_bucket(served.admin.identity.organisation, "more-data")
    assert [bucket.name for bucket in storage.buckets("default")] == ["cloudml", "more-data"]
    assert [bucket.name for bucket in storage.buckets("other")] == ["others"]
    assert [bucket.name for bucket in storage.buckets(None)] == ["cloudml", "more-data", "others"]


def test_who_asks_for_his_buckets_does_not_read_those_of_all(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each job that starts asks."""
    storage, store = served.platform.storage, served.platform.store
    for number in range(60):
        storage.create_bucket(served.stranger.identity.organisation, f"theirs-{number:02}")
    storage.create_bucket(served.admin.identity.organisation, "newest")
    read, lines = store.list, []

    def counted(*kind: Any, **filters: Any) -> Page[Summary]:
        page = read(*kind, **filters)
        lines.extend(page.items)
        return page

    monkeypatch.setattr(store, "list", counted)
    assert [bucket.name for bucket in storage.buckets("default")] == ["cloudml", "newest"]
    assert len(lines) < 30
    assert len(storage.buckets("other")) == 61
    assert len(storage.buckets(None)) == 63


def test_a_bucket_is_made_once_and_a_repeat_is_success(served: Served) -> None:
    storage, org = served.platform.storage, served.admin.identity.organisation
    assert storage.create_bucket(org, "more-data") == storage.create_bucket(org, "more-data")
    with pytest.raises(AlreadyExists, match="taken"):
        storage.create_bucket(served.stranger.identity.organisation, "more-data")
    with pytest.raises(InvalidRequest):
        storage.create_bucket(org, "../etc")


def test_a_bucket_whose_folder_was_never_made_is_healed_by_asking_again(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, org = served.platform.storage, served.admin.identity.organisation

    def killed(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(served.platform.objects, "create_bucket", killed)
        storage.create_bucket(org, "more-data")
    storage.create_bucket(org, "more-data")
    put(served, "a", b"a", bucket="more-data")


@pytest.mark.parametrize("bucket", ["others", "missing", "..", "a/b", ""])
def test_foreign_and_missing_buckets_get_the_same_answer(served: Served, bucket: str) -> None:
    storage = served.platform.storage
    for ask in (
        lambda: storage.list("default", bucket),
        lambda: storage.head("default", bucket, "a"),
        lambda: storage.read("default", bucket, "a"),
        lambda: storage.upload("default", bucket, "a"),
        lambda: storage.delete("default", bucket, "a"),
    ):
        with pytest.raises(NotFound) as caught:
            ask()
        assert str(caught.value) == f"there is no bucket {bucket}"


def test_an_object_is_written_listed_read_and_removed(served: Served) -> None:
    storage = served.platform.storage
    put(served, "a/b", b"hello")
    assert storage.head("default", "cloudml", "a/b").size == 5
    assert b"".join(storage.read("default", "cloudml", "a/b", start=1, length=3)[1]) == b"ell"
    assert storage.list("default", "cloudml", delimiter=True).folders == ["a/"]
    assert [one.key for one in storage.list("default", "cloudml", "a/").objects] == ["a/b"]
    assert storage.delete("default", "cloudml", "a/b").size == 5
    for ask in (storage.head, storage.read, storage.delete):
        with pytest.raises(NotFound, match="a/b"):
            ask("default", "cloudml", "a/b")


def test_an_upload_that_is_left_leaves_nothing(served: Served) -> None:
    with served.platform.storage.upload("default", "cloudml", "a") as upload:
        upload.write(b"half")
    with pytest.raises(NotFound):
        served.platform.storage.head("default", "cloudml", "a")


def test_replays_change_nothing(served: Served) -> None:
    once = Once("token", served.clock() + timedelta(minutes=5))
    put(served, "a", b"new", once=once)
    with pytest.raises(Unauthenticated):
        put(served, "a", b"old", once=once)
    assert served.platform.objects.get("cloudml", "a") == b"new"
    with pytest.raises(Unauthenticated):
        served.platform.storage.delete("default", "cloudml", "a", once=once)
    assert served.platform.objects.get("cloudml", "a") == b"new"
