"""A local model on its way to the server."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from cloud_ml.errors import AlreadyExists, InvalidRequest
from cloud_ml.models.common import refuse
from cloud_ml.models.paths.local import local_path
from cloud_ml.models.services.model_files import (
    ENDINGS,
    MODEL_FILES,
    MODEL_PARTS,
    TEXT_MODELS,
    named_for_its_format,
)
from cloud_ml.sdk.models.folder_walk import walk_files
from cloud_ml.sdk.models.formats import SERVED_KINDS, export_advice, wrong_content
from cloud_ml.sdk.progress import Progress
from cloud_ml.sdk.storage.transfers import source_changed, unreadable

if TYPE_CHECKING:
    from cloud_ml.sdk.storage.client import Storage

_CLASS = re.compile(
    rb"^(?:[^#\n]*[^#\n.\w])?Model\b"
    rb"|^[^#\n]*\bimport[ \t]*\*"
    rb"|^[ \t]*def[ \t]+__getattr__\b",
    re.MULTILINE,
)
"""A name ``Model`` that is no attribute and in no comment, or what may bring one. Whether it is a
class with the right methods only the server finds out, which runs the code.
"""
_OUTPUT = re.compile(r"(?P<job>[A-Za-z0-9][-A-Za-z0-9]{0,62})(?P<sign>[:/]?)(?P<path>(?<=[:/]).*)?")
"""An output of a job, or what is typed for one."""
READ_BYTES = 2**20
"""So much of a file is looked at."""
_MOST_FILES = 10_000
_NEAR = ("*", "*/*", "*/*/*")
"""Where a model is looked for below a folder that is none."""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A file of a model, and where it belongs below the folder of versions, such as
    ``1/model.onnx``.
    """

    path: Path
    key: str
    size: int


def _files_of_file(source: Path) -> list[ModelFile]:
    """A model of one file, with the files that belong to it."""
    name = name_of_model_file(source, str(source))
    check_beginning(source, str(source), _begin(source))
    folders = (source.parent.resolve(), source.resolve().parent)
    beside = [
        each
        for each in _companions(source)
        if each.is_file() and any(each.resolve().is_relative_to(one) for one in folders)
    ]
    found = [ModelFile(source, f"1/{name}", source.stat().st_size)]
    found += [ModelFile(each, f"1/{each.name}", each.stat().st_size) for each in beside]
    _check_signatures(source, found)
    return found


def files_of(source: Path) -> list[ModelFile]:
    """The files of a model, numbered: folders named by numbers as they are, anything else as
    version 1.

    Raises:
        InvalidRequest: There is no such path, or no model that the server would know.
    """
    if source.is_file():
        return _files_of_file(source)
    if not source.is_dir():
        error = refuse(
            "model_uri",
            str(source),
            "fds://bucket/folder, JOB:PATH, or a file or folder of this machine that exists",
        )
        error.hint = _hint_of_output(str(source))
        raise error
    try:
        found = _files_of_folder(source)
    except OSError as error:
        raise unreadable(Path(error.filename or source), error) from error
    if len(found) > _MOST_FILES:
        raise _no_model(
            source,
            f"at most {_MOST_FILES} files; there are {len(found)}",
            "name the folder that holds the model alone",
        )
    _check_models(source, found)
    _check_signatures(source, found)
    return found


def _files_of_folder(source: Path) -> list[ModelFile]:
    numbered = sorted(
        one
        for one in source.iterdir()
        if one.name.isascii() and one.name.isdigit() and one.is_dir()
    )
    if numbered:
        found = [file for folder in numbered for file in _below(source, folder, folder.name)]
    elif any((source / name).exists() for name in MODEL_FILES):
        found = _below(source, source, "1")
    else:
        allowed = f"numbered folders (1, 2…) with models, or one of {', '.join(MODEL_FILES)} in it"
        near = (one for pattern in _NEAR for one in source.glob(pattern))
        paths = [str(one) for one in itertools.islice(near, _MOST_FILES)]
        raise _no_model(source, allowed, advice_for_folder(str(source), paths))
    if not found:
        raise _no_model(source, "numbered folders with files in them")
    return found


def check_beginning(path: PurePath, source: str, beginning: bytes) -> None:
    """Refuse a file whose ending is that of a model, and which is something else.

    Args:
        path: The file's name, with its ending.
        source: What the message calls it.
        beginning: Its first bytes; of Python code all that tells of a class.

    Raises:
        InvalidRequest: It is a text of another kind, or a script.
    """
    _check_binary(path, source, beginning)
    framework, pattern = TEXT_MODELS.get(path.suffix, ("", None))
    if pattern is not None and not pattern.match(beginning):
        allowed = f"a model of {framework}, where its name ends in {path.suffix}"
        raise _no_model(source, allowed, SERVED_KINDS)
    if path.suffix == ".py" and not _CLASS.search(beginning):
        raise _no_model(
            source,
            "Python code with a class Model that has load and predict",
            f"to run {path.name} as a job: cloudml run {source}",
        )


def _hint_of_output(text: str) -> str | None:
    """What to type where the output of a job may be meant; ``None`` where a path is."""
    found = _OUTPUT.fullmatch(text)
    if found is None:
        return None
    job, sign, path = found["job"], found["sign"], found["path"]
    if sign == ":":
        if len(job) < 2 or job == job.lower():  # such as C: of Windows
            return None
        return f"Names of jobs are in lower case: {job.lower()}:{path}"
    if job != job.lower():
        return None
    return f"If {job} is a job: {job}:{path or 'PATH'}. See what it has left: cloudml jobs outputs {job}"


def _begin(file: Path) -> bytes:
    try:
        with file.open("rb") as content:
            return content.read(READ_BYTES)
    except OSError as error:
        raise unreadable(file, error) from error


def _check_binary(path: PurePath, source: str, beginning: bytes) -> None:
    """Refuse text under a name that only models have which are no text."""
    if (wrong := wrong_content(path, beginning)) is not None:
        maker, what = wrong
        allowed = f"a model of {maker}, where its name ends in {path.suffix}"
        raise _no_model(source, allowed, f"{what} {SERVED_KINDS}")


def models_in_versions(keys: Sequence[str]) -> list[str]:
    """Of files such as ``1/model.onnx`` those that tell that a version is a model."""
    return [key for key in keys if key.count("/") == 1 and key.partition("/")[2] in MODEL_FILES]


def _check_models(source: Path, files: Sequence[ModelFile]) -> None:
    """Refuse versions of which none is a model, and a single version that is text.

    Raises:
        InvalidRequest: No replica could load it.
    """
    models = models_in_versions([file.key for file in files])
    if not models:
        raise _no_model(
            source,
            f"numbered folders (1, 2…) with one of {', '.join(MODEL_FILES)} in them",
            advice_for_folder(str(source), [str(file.path) for file in files]),
        )
    # The server takes the first of several. It serves the newest version, which may come later.
    first = min(models, key=lambda key: MODEL_FILES.index(key.partition("/")[2]))
    if len({file.key.partition("/")[0] for file in files}) == 1:
        (file,) = [each for each in files if each.key == first]
        _check_binary(file.path, str(file.path), _begin(file.path))


def _check_signatures(source: Path, files: Sequence[ModelFile]) -> None:
    """Refuse Python code without the file that says what it takes.

    Raises:
        InvalidRequest: A version is ``model.py`` and has no ``signature.json``.
    """
    lacking = {f"{number}/model.py" for number in without_signature([file.key for file in files])}
    for file in files:
        if file.key in lacking:
            raise _no_model(
                source,
                f"Python code with a signature.json beside {file.path.name}",
                "write what the model takes: cloudml models signature "
                f"{file.path} --input x:float32[?,8] -o {file.path.with_name('signature.json')}",
            )


def without_signature(keys: Sequence[str]) -> list[str]:
    """The versions that are ``model.py`` and have no ``signature.json``: no replica could load
    them. ``keys`` are those of all files, such as ``1/model.py``.
    """
    known = set(keys)
    return [
        number
        for number, name in (key.split("/", 1) for key in keys)
        if name == "model.py"
        and f"{number}/signature.json" not in known
        and not any(f"{number}/{other}" in known for other in MODEL_FILES if other != name)
    ]


def _companions(file: Path) -> list[Path]:
    """Files beside a model that belong to it: its signature, and the weights that ONNX keeps in
    files of their own. A link counts if it stays beside the model, or beside what a link to the
    model leads to.
    """
    beside = [file.with_name("signature.json")]
    if file.suffix == ".onnx":
        beside += [file.with_name(file.name + ending) for ending in (".data", "_data")]
    return beside


def name_of_model_file(path: PurePath, source: str) -> str:
    """The name under which the server knows a model that is one file.

    Raises:
        InvalidRequest: Its ending is that of no model; the message names the ``source``.
    """
    name = named_for_its_format(path.name)
    if name is None:
        allowed = f"a file that ends in {', '.join(ENDINGS)}, or a folder with a model"
        raise _no_model(source, allowed, export_advice(path))
    return name


def send_model(
    storage: Storage, source: str, bucket: str, *, progress: Progress | None = None
) -> str:
    """Upload a model, but for the files that the server has already. Returns the URI of the folder
    of versions.

    Raises:
        InvalidRequest: It is no model, or changes while it is sent; or there is no bucket to upload
            to.
    """
    if not bucket:
        raise refuse(
            "model_uri",
            source,
            "fds://bucket/folder: your organisation has no default bucket to upload to",
        )
    files = files_of(local_path(source))
    digests = [_digest(file.path) for file in files]
    digest = hashlib.sha256()
    for file, sha256 in zip(files, digests, strict=True):
        digest.update(f"{file.key}\0{sha256}\n".encode())
    name = digest.hexdigest()
    uri = f"fds://{bucket}/.models/{name[:2]}/{name}"
    done, total = 0, sum(file.size for file in files)
    for file, sha256 in zip(files, digests, strict=True):

        def tell(part: int, _total: int | None, before: int = done) -> None:
            if progress is not None:
                progress(before + part, total)

        with contextlib.suppress(
            AlreadyExists
        ):  # its place is named by the content of all: it is the same
            storage.upload_file(
                file.path, f"{uri}/{file.key}", only_if_absent=True, progress=tell, sha256=sha256
            )
        done += file.size
    # Each file was sent as what it was digested as; this finds those that came or went meanwhile.
    if files_of(local_path(source)) != files:
        raise source_changed(Path(source))
    return uri


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise unreadable(path, error) from error


def _below(source: Path, folder: Path, number: str) -> list[ModelFile]:
    return [
        ModelFile(path, f"{number}/{path.relative_to(folder).as_posix()}", path.stat().st_size)
        for path in sorted(walk_files(source, folder))
    ]


def advice_for_folder(source: str, paths: Sequence[str]) -> str:
    """What to type instead of a folder that is no model itself; empty where nothing in it looks
    like one.
    """
    files = sorted(PurePath(path) for path in paths)
    folders = [_model_folder(file) for file in files if file.name in MODEL_PARTS]
    single = [str(file) for file in files if file.suffix in ENDINGS and _is_model(file)]
    if models := [*dict.fromkeys(folder for folder in folders if folder != source), *single]:
        return f"Did you mean {' or '.join(models[:3])}?"
    advice = (
        (file, export_advice(file))
        for file in files
        if file.suffix not in (".json", ".txt", ".bin")
    )
    return next((f"{source} holds {file.name}, but {text}" for file, text in advice if text), "")


def _model_folder(part: PurePath) -> str:
    """The folder to deploy for a file that is a part of a model: that of its versions, if it lies
    in a numbered one.
    """
    folder = part.parent
    return str(folder.parent if folder.name.isascii() and folder.name.isdigit() else folder)


def _is_model(file: PurePath) -> bool:
    """Whether a file of a known ending is likely a model by itself, and no script."""
    if file.suffix in (".py", *TEXT_MODELS):
        return file.name in MODEL_FILES
    return file.name not in MODEL_PARTS


def _no_model(source: Path | str, allowed: str, advice: str = "") -> InvalidRequest:
    hint = f"{advice[:1].upper()}{advice[1:]}" if advice else None
    return InvalidRequest(
        f"model_uri is {str(source)!r}, which holds no model; allowed is {allowed}",
        field="model_uri", value=str(source), allowed=allowed, hint=hint,
    )  # fmt: skip
