"""Names of outputs of jobs, such as ``JOB:plots/loss.png``, and where they go."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cloud_ml.errors import InvalidRequest, NotFound
from cloud_ml.models.common import refuse
from cloud_ml.models.services.model_files import MODEL_FILES
from cloud_ml.sdk.models.folders import (
    advice_for_folder,
    models_in_versions,
    name_of_model_file,
    without_signature,
)

_SOURCE = re.compile(r"(?P<job>[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?):(?P<path>(?!//).*)", re.DOTALL)
_MOST_NEAR = 3


@dataclass(frozen=True, slots=True)
class OutputSource:
    """A file or folder among the outputs of a job; an empty ``path`` means all of them."""

    job: str
    path: str

    def __str__(self) -> str:
        return f"{self.job}:{self.path}"

    def holds(self, path: str) -> bool:
        """Whether the file at ``path`` is the one that is named, or below the folder that is."""
        folder = self.path.rstrip("/")
        return not folder or path == self.path or path.startswith(f"{folder}/")


def output_source(text: str) -> OutputSource | None:
    """Read ``JOB:PATH``; ``None`` for anything else, such as a URI or a local path that exists."""
    found = _SOURCE.fullmatch(text)
    if found is None or Path(text).exists():
        return None
    return OutputSource(found["job"], found["path"].removeprefix("./"))


def refuse_other_uri(source: str) -> None:
    """Refuse ``models:/NAME/VERSION`` and ``runs:/RUN/PATH`` as the model of a service, and
    ``fds:/bucket``, which is no job of the name ``fds``.

    Raises:
        InvalidRequest: It is one of them; the hint says how to deploy its files.
    """
    if source.startswith("fds:/") and not Path(source).exists():
        error = refuse("model_uri", source, "fds://bucket/folder")
        error.hint = f"Did you mean fds://{source.removeprefix('fds:').lstrip('/')}?"
        raise error
    if source.startswith(("models:/", "runs:/")) and not Path(source).exists():
        error = refuse("model_uri", source, "fds://bucket/folder, JOB:PATH, or a file or folder")
        error.hint = (
            f"Download its files: mlflow artifacts download -u {source} -d model, then: "
            "cloudml models deploy NAME VERSION ./model"
        )
        raise error


def no_such_output(source: OutputSource, paths: Collection[str] = ()) -> NotFound:
    """The error for what a job did not leave; ``paths`` are of files that it left."""
    what = f"no output {source.path}" if source.path else "no outputs"
    near = " or ".join(f"{source.job}:{path}" for path in _near_outputs(source.path, paths))
    suggestion = f"Did you mean {near}? " if near else ""
    return NotFound(
        f"the job {source.job} has {what}",
        field="path",
        value=source.path,
        hint=f"{suggestion}List its outputs: cloudml jobs outputs {source.job}",
    )


def _near_outputs(path: str, paths: Collection[str]) -> list[str]:
    """Files and folders that are called nearly like ``path``, or lie elsewhere."""
    from difflib import get_close_matches  # noqa: PLC0415 - only on this way out

    wrong = path.strip("/")
    folders = {str(folder) for each in paths for folder in PurePosixPath(each).parents}
    there = {*paths, *folders} - {"."}
    if wrong in there:
        return [wrong]
    name = PurePosixPath(wrong).name
    same = sorted(each for each in there if name and PurePosixPath(each).name == name)
    return same[:_MOST_NEAR] or get_close_matches(wrong, sorted(there), n=_MOST_NEAR)


def local_place(target: Path, path: str) -> Path:
    """Where an output is written below ``target``.

    Raises:
        InvalidRequest: A link leads out of the folder.
    """
    place = target / path
    if not place.resolve().is_relative_to(target.resolve()):
        raise InvalidRequest(
            f"{place} lies outside of {target}: a link leads there", field="target"
        )
    return place


def version_keys(source: OutputSource, paths: Sequence[str]) -> list[str]:
    """Where each file of a model belongs below its folder of versions, such as ``1/model.onnx``.

    A folder of numbered folders is taken as it is. Any other model becomes version 1.

    Raises:
        InvalidRequest: There is no model.
    """
    keys = _keys(source, paths)
    if without_signature(keys):
        allowed = "Python code with a signature.json beside it"
        raise InvalidRequest(
            f"model_uri is {str(source)!r}, which holds no model; allowed is {allowed}",
            field="model_uri", value=str(source), allowed=allowed,
            hint="Let the job write a signature.json beside it, and deploy the folder of both.",
        )  # fmt: skip
    return keys


def _keys(source: OutputSource, paths: Sequence[str]) -> list[str]:
    if list(paths) == [source.path]:
        return [f"1/{name_of_model_file(PurePosixPath(source.path), str(source))}"]
    root = source.path.rstrip("/")
    inner = [path.removeprefix(f"{root}/") if root else path for path in paths]
    tops = {path.partition("/")[0] for path in inner if "/" in path}
    numbers = {top for top in tops if top.isascii() and top.isdigit()}
    if numbers and all(path.partition("/")[0] in numbers for path in inner):
        if models_in_versions(inner):
            return inner
    elif any(path in MODEL_FILES for path in inner):
        return [f"1/{path}" for path in inner]
    advice = advice_for_folder(str(source), [f"{source.job}:{path}" for path in paths])
    allowed = f"a model file, a folder with one of {', '.join(MODEL_FILES)}, or a folder of numbered versions"
    raise InvalidRequest(
        f"model_uri is {str(source)!r}, which holds no model; allowed is {allowed}",
        field="model_uri", value=str(source), allowed=allowed,
        hint=advice or f"List the outputs: cloudml jobs outputs {source.job}",
    )  # fmt: skip
