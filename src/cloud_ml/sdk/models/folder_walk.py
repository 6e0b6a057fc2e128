"""The files below a model's folder, and the links that are not followed."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from cloud_ml.errors import InvalidRequest
from cloud_ml.models.common import refuse
from cloud_ml.sdk.storage.transfers import unreadable


def walk_files(root: Path, folder: Path) -> Iterator[Path]:
    """The plain files below ``folder``, but for hidden ones and caches. Links are followed to what
    lies in ``root``.

    Args:
        root: The folder that was named.
        folder: It, or a folder in it.

    Raises:
        InvalidRequest: A link leads out of ``root``, nowhere or in a circle; a name is no text; or
            a folder cannot be read.
    """
    if folder.is_symlink() and folder != root:
        _check_link(root, folder, ())
    yield from _walk(root, folder, ())


def _walk(root: Path, folder: Path, above: tuple[Path, ...]) -> Iterator[Path]:
    above = (*above, folder.resolve())
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries)
    except OSError as error:
        raise unreadable(folder, error) from error
    for name in names:
        path = folder / name
        if name.startswith(".") or name == "__pycache__":
            continue
        _check_name(path)
        if path.is_symlink():
            _check_link(root, path, above)
        if path.is_dir():
            yield from _walk(root, path, above)
        elif path.is_file():
            yield path


def _check_name(path: Path) -> None:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise refuse("model_uri", str(path), "a folder of files whose names are text") from None


def _check_link(root: Path, link: Path, above: tuple[Path, ...]) -> None:
    """Refuse a link out of the folder: it would send what nobody named, such as a key."""
    try:
        target = link.resolve(strict=True)
    except (OSError, RuntimeError):  # nothing is there, or links lead in a circle
        raise _refused(root, link, "leads nowhere", "Remove it.") from None
    if not target.is_relative_to(root.resolve()):
        whole = f"cp -rL {shlex.quote(str(root))} COPY"
        raise _refused(
            root,
            link,
            f"leads out of the folder, to {target}",
            f"If this is meant to be sent, deploy a copy without links: {whole}",
        )
    if any(one.is_relative_to(target) for one in above):
        raise _refused(root, link, "leads to a folder that holds it", "Remove it.")


def _refused(root: Path, link: Path, what: str, hint: str) -> InvalidRequest:
    return InvalidRequest(
        f"the link {link.relative_to(root)} {what}",
        field="model_uri",
        value=str(link),
        allowed="links within the folder of the model",
        hint=hint,
    )
