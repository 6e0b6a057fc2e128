"""Where the artifacts of a run are."""

from __future__ import annotations

from urllib.parse import unquote

from cloud_ml.errors import InvalidRequest

ARTIFACTS_BEFORE, ARTIFACTS_AFTER = "mlflow-artifacts:/", "/artifacts"
MODELS = "models"
_FOLDER_PARTS, _DECODED = 2, 3
_NEVER = ("/", "\\", "\x00")


def artifact_uri(run: str) -> str:
    """The URI under which MLflow's clients find the artifacts of a run."""
    return f"{ARTIFACTS_BEFORE}{run}{ARTIFACTS_AFTER}"


def model_uri(model: str) -> str:
    """The URI of the files of a logged model."""
    return f"{ARTIFACTS_BEFORE}{MODELS}/{model}"


def artifact_key(path: str, *, is_folder: bool = False) -> tuple[str, str, str]:
    """The folder, and in it the run or the model, that a path of an artifact begins with, and the
    key of the object below ``mlflow/``. The folder of a run is empty.

    Where it is said to be a folder, it may be that of all artifacts. A file there would keep all
    others out.

    Raises:
        InvalidRequest: The path leaves its root, also after it is decoded once more, or names no
            run.
    """
    parts = [part for part in path.split("/") if part]
    for part in parts:
        decoded = part
        for _ in range(_DECODED):
            decoded = unquote(decoded)
            if decoded in (".", "..") or any(sign in decoded for sign in _NEVER):
                raise _leaves(path)
    least = _FOLDER_PARTS if is_folder else _FOLDER_PARTS + 1
    if path.startswith("/") or "\\" in path or len(parts) < least:
        raise _leaves(path)
    key = "mlflow/" + "/".join(parts)
    if parts[0] == MODELS:
        return MODELS, parts[1], key
    if parts[1] != "artifacts":
        raise _leaves(path)
    return "", parts[0], key


def _leaves(path: str) -> InvalidRequest:
    shown = path[:200]
    return InvalidRequest(
        f"path is {shown!r}; allowed is RUN/artifacts/PATH without '.', '..' and backslashes",
        field="path", value=shown, allowed="RUN/artifacts/PATH",
    )  # fmt: skip
