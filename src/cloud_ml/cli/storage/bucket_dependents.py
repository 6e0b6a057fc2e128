"""What needs a bucket that is to be removed: model services, and jobs that wait."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from cloud_ml.errors import CloudMlError
from cloud_ml.models.common import split_uri

if TYPE_CHECKING:
    from cloud_ml.client import CloudMlClient

_MOST_READ = 50
"""Services and jobs that are looked at: each takes a request."""
_SHOWN = 5


def describe_dependents(client: CloudMlClient, buckets: Collection[str]) -> list[str]:
    """Sentences about what needs these buckets; empty if nothing does, or if the caller may not
    know.
    """
    sentences = []
    where = "this bucket" if len(buckets) == 1 else "these buckets"
    with contextlib.suppress(CloudMlError):  # such as a token for storage only
        if services := sorted(_services(client, buckets)):
            sentences.append(f"Model services load their model from {where}: {_listed(services)}.")
    with contextlib.suppress(CloudMlError):
        if jobs := sorted(_queued_jobs(client, buckets)):
            sentences.append(f"Queued jobs have their code in {where}: {_listed(jobs)}.")
    return sentences


def _services(client: CloudMlClient, buckets: Collection[str]) -> Iterator[str]:
    for line in client.list_model_services(limit=_MOST_READ):
        spec = client.describe_model_service(line.name, line.version).spec
        if _is_in(spec.get("model_uri"), buckets):
            yield f"{line.name} {line.version}"


def _queued_jobs(client: CloudMlClient, buckets: Collection[str]) -> Iterator[str]:
    for line in client.list_train_jobs(state="Queued", limit=_MOST_READ):
        spec = client.describe_train_job(line.name).spec
        if _is_in(spec.get("trainer_uri"), buckets):
            yield line.name


def _is_in(uri: object, buckets: Collection[str]) -> bool:
    return isinstance(uri, str) and uri.startswith("fds://") and split_uri(uri)[0] in buckets


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
