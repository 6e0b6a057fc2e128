"""Writes files of a folder that MLflow reads as its store: each appears as a whole, and none leaves it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cloud_ml.client import CloudMlClient

_LONGEST_NAME = 255


@dataclass
class ExportResult:
    """What an export has written. ``omitted`` tells what could not be written, and why."""

    runs: int = 0
    files: int = 0
    models: int = 0
    omitted: list[str] = field(default_factory=list)


class StoreWriter:
    """Writes below a folder.

    Args:
        client: The server.
        bucket: The bucket of artifacts; empty if there is none.
        result: Is told what was written, and what could not be.
    """

    def __init__(self, client: CloudMlClient, bucket: str, result: ExportResult) -> None:
        self._client = client
        self._bucket = bucket
        self._result = result

    def write_texts(self, folder: Path, texts: Mapping[str, str]) -> None:
        """Write each text as a file of its name."""
        folder.mkdir(parents=True, exist_ok=True)
        for key, text in texts.items():
            if (path := self.below(folder, key)) is not None:
                with self.noting(key, folder):
                    write_file(path, text)

    def fetch_artifacts(self, below: str, folder: Path) -> None:
        """Fetch the objects below a path of the bucket's ``mlflow/``."""
        if not self._bucket:
            return
        prefix = f"mlflow/{below}/"
        for one in self._client.storage.list_objects(f"fds://{self._bucket}/{prefix}"):
            path = self.below(folder, one.key.removeprefix(prefix))
            if path is None or (path.is_file() and path.stat().st_size == one.size):
                continue
            with self.noting(one.key, folder):
                path.parent.mkdir(parents=True, exist_ok=True)
                self._client.storage.download(f"fds://{one.bucket}/{one.key}", path)
                self._result.files += 1

    def below(self, folder: Path, name: str) -> Path | None:
        """The path of a name that somebody else may have chosen; ``None`` if it leaves the folder,
        also by a link.
        """
        parts = name.split("/")
        wrong = any(part in ("", ".", "..") or "\0" in part for part in parts)
        wrong = wrong or any(len(part.encode()) > _LONGEST_NAME for part in parts)
        path = folder.joinpath(*parts) if not wrong else folder
        if wrong or not path.resolve().is_relative_to(folder.resolve()):
            self._result.omitted.append(f"{name[:200]!r} is no path below {folder}")
            return None
        return path

    @contextlib.contextmanager
    def noting(self, name: str, folder: Path) -> Iterator[None]:
        """Leave out what has no room beside others: a metric ``a`` and one ``a/b``."""
        try:
            yield
        except (NotADirectoryError, IsADirectoryError, FileExistsError):
            self._result.omitted.append(
                f"{name[:200]!r} in {folder}: another name is the beginning of its path"
            )


def write_file(path: Path, content: str | Iterable[str]) -> None:
    """Write a file, which appears as a whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", newline="", dir=path.parent, prefix=".draft-", delete=False
    ) as draft:
        try:
            draft.writelines([content] if isinstance(content, str) else content)
            draft.close()
            Path(draft.name).chmod(0o644)
            Path(draft.name).replace(path)
        except BaseException:
            Path(draft.name).unlink(missing_ok=True)
            raise
