"""The recipe of a job that counts workers and names none, read from its local code.

The server finds the framework when it stages the code. That is too late for the number of tasks,
which is fixed when the job is submitted: with TensorFlow there is a master beside so many workers,
with any other framework there are so many tasks. The server's own reader of sources is not for
clients: it belongs to the maker of environments.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cloud_ml.errors import CloudMlError
from cloud_ml.models.paths.local import local_path
from cloud_ml.sdk.trainers.packaging import list_files
from cloud_ml.sdk.trainers.script_files import REQUIREMENT_FILES, list_imports
from cloud_ml.text_encoding import decode_text

if TYPE_CHECKING:
    from cloud_ml.models.jobs.train_job import TrainJob

MODULES: Mapping[str, Sequence[str]] = {
    "pytorch": ("torch", "torchvision", "torchaudio", "lightning", "pytorch_lightning"),
    "jax": ("jax", "flax", "optax"),
    "xgboost": ("xgboost",),
    "lightgbm": ("lightgbm",),
}
"""Recipe → modules that tell it. Where code imports those of several, the first recipe counts, as
on the server.
"""
UNCLEAR = ("tensorflow", "tf_keras", "keras", "paddle")
"""Modules of code that is TensorFlow's, or may be, or has no recipe: the server decides."""
_WORDS = re.compile(
    rb"\b(?:" + "|".join((*sum(map(tuple, MODULES.values()), ()), *UNCLEAR)).encode() + rb")\b"
)
_UNCLEAR_PACKAGE = re.compile(
    r"(?<![\w.-])(?:tensorflow(?:[-_.](?:cpu|gpu))?|tf[-_.]keras|keras|paddlepaddle(?:[-_.]gpu)?)"
    r"(?![\w.-])",
    re.IGNORECASE,
)
_TORCH_PACKAGE = re.compile(r"^\s*(torch|lightning|pytorch[-_.]lightning)(?![\w.-])", re.MULTILINE)
_COMMENT = re.compile(r"#[^\n]*")
_FILES, _FILE_BYTES, _ALL_BYTES = 500, 1 << 20, 16 << 20
"""The bounds of the server's reader. Of code beyond them, nothing is said."""


@dataclass(frozen=True, slots=True)
class CodeRecipe:
    """A recipe, and what tells it, such as ``train.py imports torch``."""

    recipe: str
    reason: str


def with_recipe_of_code(job: TrainJob) -> TrainJob:
    """The job with the recipe that its code tells, if ``recipe_of_code`` finds one."""
    found = recipe_of_code(job)
    return job if found is None else dataclasses.replace(job, recipe=found.recipe)


def recipe_of_code(job: TrainJob) -> CodeRecipe | None:
    """The recipe of a job that counts workers, and says nothing else about its roles or framework.

    ``None`` for any other job, for code that is not on this machine or is an archive, and where the
    code leaves a doubt: it also imports TensorFlow, or Keras, or requires it.
    """
    if not _counts_workers_only(job):
        return None
    try:
        files = list_files(local_path(job.trainer_uri))
        required = dict(_requirements(job, files))
        if any(_UNCLEAR_PACKAGE.search(text) for text in required.values()):
            return None
        found = _read_imports(_sources(files, job.module_name))
    except (OSError, CloudMlError, _Unclear):  # what cannot be packed is refused when it is
        return None
    for recipe in MODULES:
        if recipe in found:
            return CodeRecipe(recipe, found[recipe])
    return _of_requirements(required)


class _Unclear(Exception):
    """The code leaves a doubt."""


def _counts_workers_only(job: TrainJob) -> bool:
    explicit = (
        job.framework, job.framework_version, job.recipe, job.array, job.cluster_spec,
        job.ps_count, job.ps_spec, job.master_spec, job.cluster_arguments,
    )  # fmt: skip
    if any(explicit) or "://" in job.trainer_uri:
        return False
    elastic = job.elastic or {}
    rules = (job.restart.rules if job.restart is not None else None) or ()
    named = {*elastic, *(role for rule in rules for role in rule.roles or ())}
    counted = job.worker_count or job.worker_spec is not None or "worker" in elastic
    return bool(counted) and "master" not in named


def _sources(files: Iterable[tuple[str, Path]], module: str) -> Iterator[tuple[str, bytes]]:
    """Names and texts of the Python files that say a word of interest, that of the module first."""
    path = module.replace(".", "/")
    own = (f"{path}.py", f"{path}/__main__.py")
    python = [(name, file) for name, file in files if name.endswith(".py")]
    if len(python) > _FILES:
        raise _Unclear
    left = _ALL_BYTES
    for name, file in sorted(python, key=lambda one: (not one[0].endswith(own), one[0])):
        if file.stat().st_size > _FILE_BYTES:
            continue
        text = file.read_bytes()
        if (left := left - len(text)) < 0:
            raise _Unclear
        if _WORDS.search(text):
            yield name, text


def _read_imports(sources: Iterable[tuple[str, bytes]]) -> dict[str, str]:
    """Recipe → what tells it.

    Raises:
        _Unclear: Some code imports a module that is unclear, or cannot be read and may do so.
    """
    found: dict[str, str] = {}
    for name, text in sources:
        words = {word.decode() for word in _WORDS.findall(text)}
        if not words.intersection(UNCLEAR) and "pytorch" in found:
            continue  # nothing in it could change the answer
        imported = list_imports(text)
        if (words if imported is None else imported).intersection(UNCLEAR):
            raise _Unclear
        for recipe, modules in MODULES.items():
            module = next((one for one in modules if one in (imported or ())), None)
            if module and recipe not in found:
                found[recipe] = f"{name} imports {module}"
    return found


def _requirements(job: TrainJob, files: Iterable[tuple[str, Path]]) -> Iterator[tuple[str, str]]:
    """What the job requires, and each file of its top folder that says so: name and text."""
    yield "requirements", "\n".join(job.requirements or ())
    known = (*REQUIREMENT_FILES, "setup.py", "setup.cfg")
    for name, file in files:
        if name in known and file.stat().st_size <= _FILE_BYTES:
            yield name, _COMMENT.sub("", decode_text(file.read_bytes(), "replace"))


def _of_requirements(required: Mapping[str, str]) -> CodeRecipe | None:
    """Code that imports Transformers, say, names PyTorch in its requirements only."""
    for name in ("requirements.txt", "requirements"):
        if match := _TORCH_PACKAGE.search(required.get(name, "")):
            verb = "requires" if name == "requirements.txt" else "name"
            return CodeRecipe("pytorch", f"{name} {verb} {match[1]}")
    return None
