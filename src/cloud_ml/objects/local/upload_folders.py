"""Where uploads in several requests lie: ``<bucket>/<id>/about``, and beside it their parts or
segments.

Each bucket has a folder of its own, so a call for one bucket costs the same however many uploads
others have.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from cloud_ml.errors import InvalidRequest
from cloud_ml.models.common import check_bucket
from cloud_ml.objects.multipart import Declared, Multipart, no_upload

ABOUT = "about"
_ID = re.compile(r"[0-9a-f]{32}")
_BEGINNING_S = 3600.0


class UploadFolders:
    """Below ``folder``, which no job sees.

    Args:
        folder: Where the folders of buckets lie.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def place(self, bucket: str, upload: str) -> Path:
        """The folder of an upload, which need not be there.

        Raises:
            NotFound: No bucket can have that name.
        """
        try:
            check_bucket("bucket", bucket)
        except InvalidRequest:
            raise no_upload(upload) from None
        return self.folder / bucket / upload

    def buckets(self) -> list[str]:
        """Buckets that have uploads, or had some."""
        return sorted(os.listdir(self.folder))  # noqa: PTH208

    def ids(self, bucket: str) -> Iterator[str]:
        """Ids of the uploads to a bucket, in no order; some may have ended."""
        with contextlib.suppress(FileNotFoundError), os.scandir(self.place(bucket, "")) as entries:
            for entry in entries:
                if _ID.fullmatch(entry.name):
                    yield entry.name

    def read(self, bucket: str, upload: str) -> Multipart | None:
        """What an upload is; ``None`` if it is over."""
        place = self.place(bucket, upload)
        try:
            about = json.loads((place / ABOUT).read_bytes())
            touched = datetime.fromtimestamp(place.stat().st_mtime, UTC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        key = about.pop("key")
        if about.pop("bucket") != bucket:
            return None
        return Multipart(upload, bucket, key, Declared(**about), touched)

    def remove(self, bucket: str, upload: str) -> None:
        """Remove an upload's folder. One that begins under the same id at this moment has a
        folder of its own.
        """
        place = self.place(bucket, upload)
        (place / ABOUT).unlink(missing_ok=True)  # first: without it there is no upload any more
        aside = place.with_name(f"{upload}.{secrets.token_hex(8)}")
        with contextlib.suppress(OSError):
            place.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)

    def remove_bucket(self, bucket: str) -> None:
        """Remove the folder of a bucket that has no uploads any more."""
        # An upload is starting right now. It is dropped with the next bucket.
        with contextlib.suppress(OSError):
            self.place(bucket, "").rmdir()

    def sweep(self) -> None:
        """Remove what a crash has left of uploads that were over. One that begins at this moment
        is left alone.
        """
        old = time.time() - _BEGINNING_S
        for bucket in self.folder.iterdir():
            for place in bucket.iterdir():
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    if not (place / ABOUT).exists() and place.stat().st_mtime < old:
                        shutil.rmtree(place, ignore_errors=True)

    def move_earlier(self) -> None:
        """Move uploads that lie side by side, as earlier versions kept them, to the folders of
        their buckets.
        """
        for place in self.folder.iterdir():
            with contextlib.suppress(OSError, ValueError, KeyError):
                bucket = json.loads((place / ABOUT).read_bytes())["bucket"]
                (self.folder / bucket).mkdir(mode=0o700, exist_ok=True)
                place.rename(self.folder / bucket / place.name)


def about(bucket: str, key: str, declared: Declared) -> bytes:
    """What an upload's file says of it."""
    return json.dumps({"bucket": bucket, "key": key, **asdict(declared)}).encode()
