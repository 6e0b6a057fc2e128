"""What a model's file really holds, by its bytes: nothing of it is run, whatever its name says."""

import io
import pickletools
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_HEAD = 512
_MOST_PICKLE = 4 << 20
_MOST_NAMES = 64
_MOST_PICKLES = 4
"""Before PyTorch 1.6 a file began with three pickles about itself; the fourth one is what was
saved.
"""
_SUBMODULES = b"_modules"
"""An attribute of every ``torch.nn.Module``: its pickle has this name, and a checkpoint has not."""
_STARTS = (
    (
        b"version https://git-lfs",
        "a Git LFS pointer: run `git lfs pull` and upload the file itself",
    ),
    (
        b"\x89HDF\r\n\x1a\n",
        "an HDF5 file, as Keras 2 wrote it: load it and save it with model.save('model.keras')",
    ),
    (b"<!doctype html", "an HTML page: the download that wrote it failed"),
    (b"<html", "an HTML page: the download that wrote it failed"),
    (b"PK\x03\x04", "a ZIP archive, such as a PyTorch or Keras file"),
    (b"\x1f\x8b", "a gzip archive: unpack it first"),
    (b"\x80", "a Python pickle"),
)
"""How a file begins, and what it is then."""
_WEIGHTS_ONLY = frozenset(
    {"collections", "builtins", "__builtin__", "numpy", "numpy.core.multiarray", "_codecs"}
)
"""Modules that a pickle of tensors names beside those of PyTorch's tensors."""
_TENSOR_MODULES = ("torch._utils", "torch._tensor", "torch.serialization", "torch.storage")


def strange_content(file: Path) -> str:
    """What a file is that does not hold what its name says; empty where its first bytes say
    nothing.
    """
    try:
        with file.open("rb") as content:
            head = content.read(_HEAD)
    except OSError:
        return ""
    if not head:
        return "empty"
    lower = head.lstrip().lower()
    return next(
        (what for start, what in _STARTS if head.startswith(start) or lower.startswith(start)), ""
    )


@dataclass(frozen=True, slots=True)
class TorchFile:
    """What a file of PyTorch holds. ``kind``: ``script``, ``weights``, ``module``, or ``unknown``.

    ``classes`` are the classes that a pickled module needs, such as ``__main__.Net``.
    """

    kind: str
    classes: tuple[str, ...] = ()


def torch_file(file: Path) -> TorchFile:
    """What ``torch.save`` or ``torch.jit.save`` put into a file."""
    try:
        with file.open("rb") as content:
            if content.read(2) == b"PK":
                return _torch_archive(file)
            content.seek(0)
            return _read_pickle(content.read(_MOST_PICKLE))
    except (OSError, zipfile.BadZipFile, ValueError, RuntimeError, NotImplementedError, EOFError):
        return TorchFile("unknown")


def _torch_archive(file: Path) -> TorchFile:
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        if any(name.endswith("/constants.pkl") for name in names) or any(
            "/code/" in name for name in names
        ):
            return TorchFile("script")
        pickled = next((name for name in names if name.endswith("/data.pkl")), None)
        if pickled is None:
            return TorchFile("unknown")
        with archive.open(pickled) as content:
            return _read_pickle(content.read(_MOST_PICKLE))


def _read_pickle(data: bytes) -> TorchFile:
    """What a pickle would make, by the names in it; it is not loaded."""
    found: list[tuple[str, str]] = []
    stream = io.BytesIO(data)
    try:
        for _ in range(_MOST_PICKLES):
            found.extend(_globals(stream))
    except Exception:  # of bytes that are no pickle, and of one that was cut off
        if not found:
            return TorchFile("unknown")
    classes = [f"{module}.{name}" for module, name in found if not _is_of_tensors(module, name)]
    has_tensors = any(module.startswith(_TENSOR_MODULES) for module, _ in found)
    if _SUBMODULES in data or (classes and not has_tensors):
        return TorchFile("module", tuple(dict.fromkeys(classes))[:_MOST_NAMES])
    return TorchFile("weights" if found else "unknown")


def _globals(stream: BinaryIO) -> Iterator[tuple[str, str]]:
    """Modules and names that the next pickle of a stream would import."""
    memo: dict[int, str] = {}
    before, last = "", ""
    for code, value, _ in pickletools.genops(stream):
        if code.name == "GLOBAL":
            module, _, name = str(value).partition(" ")
            yield module, name
        # Module and name are the two strings that were put on the stack last, perhaps out of the
        # memo.
        elif code.name == "STACK_GLOBAL":
            yield before, last
        elif code.name == "MEMOIZE":
            memo[len(memo)] = last
        elif code.name in ("BINPUT", "LONG_BINPUT") and isinstance(value, int):
            memo[value] = last
        elif code.name in ("BINGET", "LONG_BINGET") and isinstance(value, int):
            before, last = last, memo.get(value, "")
        elif isinstance(value, str):
            before, last = last, value


def _is_of_tensors(module: str, name: str) -> bool:
    if module == "torch":
        return (
            name.endswith("Storage")
            or name in ("device", "Size")
            or name.startswith(("float", "int", "uint", "bfl"))
        )
    return module in _WEIGHTS_ONLY or module.startswith(_TENSOR_MODULES)
