"""Outputs of jobs on their way to this machine, and models among them on their way to a service."""

from __future__ import annotations

import contextlib
import hashlib
from contextlib import aclosing
from pathlib import Path, PurePosixPath

from cloud_ml.aio.jobs.calls import AsyncJobCalls
from cloud_ml.aio.storage.client import AsyncStorage
from cloud_ml.errors import AlreadyExists
from cloud_ml.models.jobs.outputs import OutputFile
from cloud_ml.sdk.jobs.output_paths import OutputSource, local_place, no_such_output, version_keys
from cloud_ml.sdk.models.folders import READ_BYTES, check_beginning

_MOST_OTHERS = 1000
"""Among so many outputs the one that may be meant is looked for."""


async def select_outputs(calls: AsyncJobCalls, source: OutputSource) -> list[OutputFile]:
    """The file that a source names, or the files below that folder.

    Raises:
        NotFound: There is no such job, or it left no such file.
    """
    found: list[OutputFile] = []
    others: list[str] = []
    async with aclosing(calls.outputs(source.job)) as files:
        async for file in files:
            if source.holds(file.path):
                found.append(file)
            elif len(others) < _MOST_OTHERS:
                others.append(file.path)
    if not found:
        raise no_such_output(source, others)
    return found


async def download_outputs(
    calls: AsyncJobCalls, storage: AsyncStorage, job: str, target: Path, *, path: str = ""
) -> list[Path]:
    """Write outputs below a folder, under their paths in the job's working directory."""
    files = await select_outputs(calls, OutputSource(job, path))
    places = [local_place(target, file.path) for file in files]
    for file, place in zip(files, places, strict=True):
        place.parent.mkdir(parents=True, exist_ok=True)
        await storage.download(file.uri, place)
    return places


async def copy_model(
    calls: AsyncJobCalls, storage: AsyncStorage, source: OutputSource, bucket: str
) -> str:
    """Copy a model among the outputs of a job within the server, so that it outlives the job.

    Returns the URI of the folder of versions.

    Raises:
        NotFound: There is no such job, or it left no such file.
        InvalidRequest: It is no model.
    """
    files = await select_outputs(calls, source)
    keys = version_keys(source, [file.path for file in files])
    if len(files) == 1 and files[0].path == source.path:
        check_beginning(PurePosixPath(source.path), str(source), await _begin(storage, files[0]))
    digest = hashlib.sha256()
    for file, key in zip(files, keys, strict=True):
        digest.update(f"{key}\0{file.uri}\0{file.etag}\n".encode())
    name = digest.hexdigest()
    uri = f"fds://{bucket}/.models/{name[:2]}/{name}"
    for file, key in zip(files, keys, strict=True):
        with contextlib.suppress(AlreadyExists):  # its place is named by what it holds
            await storage.copy(file.uri, f"{uri}/{key}", only_if_absent=True)
    return uri


async def _begin(storage: AsyncStorage, file: OutputFile) -> bytes:
    """The first bytes of an output, as many as tell whether it is a model."""
    beginning = bytearray()
    async with await storage.open(file.uri) as answer:
        async for chunk in answer:
            beginning += chunk
            if len(beginning) >= READ_BYTES:
                break
    return bytes(beginning)
