"""``fds://`` URIs of a job, of its code and those that it hands to it: whether their buckets exist,
before it runs.

A job that writes to a bucket that is not there fails with its last line, after all of its work.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise

from cloud_ml.errors import InvalidRequest
from cloud_ml.models import common, parameter_file
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.recipes.paths import uri_in
from cloud_ml.usecases.storage.objects import Storage

_FIELDS = (
    "model_input_path",
    "model_export_path",
    "data_input_path",
    "data_output_path",
    "output_path",
    "restore_from",
    "tensorboard_logdir",
)
"""Fields that reach the code as variables."""


@dataclass(frozen=True)
class BucketUri:
    """A URI of a job: ``field`` of the request, ``name`` of the option or variable, and its
    bucket.
    """

    field: str
    name: str
    uri: str
    bucket: str


def find_bucket_uris(job: TrainJob) -> Iterator[BucketUri]:
    """The URIs of this server in the trainer, arguments, variables and paths of a job, in this
    order.
    """
    yield from _find_uris("trainer_uri", "trainer_uri", job.trainer_uri)
    # The code opens these URIs itself, from another object store.
    if job.fds_endpoint and not job.rewrite_uris:
        return
    for before, argument in pairwise(["", *job.arguments()]):
        option = argument if argument.startswith("-") else before
        yield from _find_uris(
            "job_args", option.partition("=")[0] if option.startswith("-") else "job_args", argument
        )
    for name, value in (job.environment or {}).items():
        yield from _find_uris(f"environment.{name}", name, value)
        if name == parameter_file.VARIABLE and "fds://" in value:
            for each, text in (parameter_file.decode_parameters(value) or {}).items():
                yield from _find_uris(f"environment.{name}", each, str(text))
    for name in _FIELDS:
        if text := getattr(job, name):
            yield from _find_uris(name, name, text)
    if job.checkpoint is not None and job.checkpoint.path:
        yield from _find_uris("checkpoint.path", "checkpoint.path", job.checkpoint.path)


def find_unknown_bucket(storage: Storage, org: str, job: TrainJob) -> InvalidRequest | None:
    """What to say about the first URI whose bucket is not the organisation's; ``None`` if there is
    none.

    A bucket of another organisation is answered like one that does not exist, and similar names
    come from the organisation's own buckets only.
    """
    known: set[str] = set()
    for one in find_bucket_uris(job):
        if one.bucket in known:
            continue
        if not storage.owns(org, one.bucket):
            return _refusal(one, suggest_buckets(storage, org, one.bucket))
        known.add(one.bucket)
    return None


def _find_uris(field: str, name: str, text: str) -> Iterator[BucketUri]:
    if "fds://" not in text:  # as most: a job's fields are looked at several times
        return
    uri = uri_in(text)
    bucket = common.split_uri(uri)[0]
    if bucket:
        yield BucketUri(field, name, uri, bucket)


def _refusal(one: BucketUri, ways: str) -> InvalidRequest:
    bucket = one.bucket[:63]
    return InvalidRequest(
        f"{one.name} is {one.uri[:300]}, but there is no bucket {bucket}",
        field=one.field,
        value=one.uri[:1000],
        allowed="a bucket of your organisation",
        hint=f"{ways} To submit anyway: --no-check-uris (check_uris=False).".lstrip(),
    )


def suggest_buckets(storage: Storage, org: str, bucket: str) -> str:
    """What helps against an unknown bucket: similar names among the organisation's own, and how
    to make it.
    """
    near = get_close_matches(bucket[:63], [one.name for one in storage.buckets(org)], n=3)
    ways = [f"Did you mean {' or '.join(near)}?"] if near else []
    if _can_be_made(bucket):
        ways.append(f"If the name is free, make it: cloudml storage mb {bucket}.")
    return " ".join(ways)


def _can_be_made(bucket: str) -> bool:
    try:
        return bool(common.check_bucket("bucket", bucket))
    except InvalidRequest:
        return False
