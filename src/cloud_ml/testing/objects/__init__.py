"""The contract of an object store, in code. Subclass ``ObjectStoreContract`` and provide ``store``.

::

    class TestMine(ObjectStoreContract):
        @pytest.fixture
        def store(self, tmp_path):
            return MyObjectStore(tmp_path)
"""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    *(
        f"{__name__}.{part}"
        for part in ("buckets", "contents", "names", "uploads", "lists", "multipart", "segments")
    )
)

from cloud_ml.objects.base import ObjectStore  # noqa: E402 - rewriting comes first
from cloud_ml.testing.objects.buckets import BucketContract  # noqa: E402
from cloud_ml.testing.objects.contents import ContentContract  # noqa: E402
from cloud_ml.testing.objects.lists import ListContract  # noqa: E402
from cloud_ml.testing.objects.multipart import MultipartContract  # noqa: E402
from cloud_ml.testing.objects.names import KeyContract  # noqa: E402
from cloud_ml.testing.objects.samples import BUCKET  # noqa: E402
from cloud_ml.testing.objects.segments import SegmentContract  # noqa: E402
from cloud_ml.testing.objects.uploads import UploadContract  # noqa: E402

__all__ = ["ObjectStoreContract"]


class ObjectStoreContract(
    BucketContract,
    ContentContract,
    KeyContract,
    UploadContract,
    ListContract,
    MultipartContract,
    SegmentContract,
):
    """Everything an object store promises."""

    @pytest.fixture(autouse=True)
    def bucket(self, store: ObjectStore) -> None:
        store.create_bucket(BUCKET)
