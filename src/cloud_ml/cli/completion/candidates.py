"""What a shell offers when a person presses Tab: fast, and silent whatever goes wrong."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from cloud_ml.client import CloudMlClient
    from cloud_ml.models.resource import ResourceType

PATIENCE_S = 1.5
"""The longest a person waits for names from a server."""
_MOST = 50


def job_names(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of jobs that begin so, the newest ones; those that are on the line already are left
    out.
    """
    found = _ask_server(
        ctx,
        lambda client: [
            one.name for one in client.list_train_jobs(name=f"{incomplete}*", limit=_MOST)
        ],
    )
    given = ctx.params.get("names") or ()
    return [name for name in found if name.startswith(incomplete) and name not in given]


def run_names(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of jobs and other runs that begin so, the newest ones; those that are on the line
    already are left out.
    """
    if "'" in incomplete or "\\" in incomplete:
        return []  # a filter cannot say it
    named = f"attributes.run_name LIKE '{incomplete}%'"
    found = _ask_server(
        ctx,
        lambda client: [
            one.name for one in client.runs.search(filter=named, columns=(), limit=_MOST)
        ],
    )
    given = ctx.params.get("names") or ()
    begun = (name for name in found if name.startswith(incomplete) and name not in given)
    return list(dict.fromkeys(begun))


def experiment_names(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of experiments that begin so."""
    found = _ask_server(ctx, lambda client: [one.name for one in client.experiments.list()])
    return [name for name in found if name.startswith(incomplete)][:_MOST]


def model_names(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of models that are served."""
    found = _ask_server(
        ctx, lambda client: [one.name for one in client.list_model_services(limit=_MOST)]
    )
    return sorted({name for name in found if name.startswith(incomplete)})


def model_versions(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Versions of the model that is on the line already."""
    name = ctx.params.get("name")
    found = _ask_server(
        ctx,
        lambda client: [one.version for one in client.list_model_services(name=name, limit=_MOST)],
    )
    return [version for version in found if version.startswith(incomplete)]


def secret_names(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of secrets."""
    found = _ask_server(ctx, lambda client: [one.name for one in client.secrets.list()])
    return [name for name in found if name.startswith(incomplete)]


def names_of(
    described: ResourceType[Any, Any],
) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Names of resources of a kind."""

    def names(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
        found = _ask_server(
            ctx, lambda client: [one.name for one in client.resources(described).list(limit=_MOST)]
        )
        return [name for name in found if name.startswith(incomplete)]

    return names


def algorithm_names(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The algorithms of studies."""
    from cloud_ml.models.studies.study import ALGORITHMS

    return [name for name in ALGORITHMS if name.startswith(incomplete)]


def framework_names(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The frameworks of the server."""
    return [
        name
        for name in _ask_server(ctx, lambda client: client.frameworks())
        if name.startswith(incomplete)
    ]


def context_names(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The contexts of the user's settings."""
    from cloud_ml.sdk.config import config_path, read_configuration

    with contextlib.suppress(Exception):
        return sorted(
            name
            for name in read_configuration(config_path()).contexts
            if name.startswith(incomplete)
        )
    return []


def state_names(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Phases of jobs, one behind the other with commas."""
    before, comma, last = incomplete.rpartition(",")
    phases = "saved queued restarting starting running finishing stopping succeeded failed stopped"
    return [f"{before}{comma}{one}" for one in phases.split() if one.startswith(last.lower())]


def files(
    _ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Whatever the shell offers for files."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def _ask_server(ctx: click.Context, ask: Callable[[CloudMlClient], Iterable[str]]) -> list[str]:
    options = ctx.find_root().params
    found: list[str] = []

    def run() -> None:
        with contextlib.suppress(Exception):
            from cloud_ml.client import CloudMlClient

            with CloudMlClient(
                endpoint=options.get("endpoint"), context=options.get("context")
            ) as client:
                found.extend(ask(client))

    asking = threading.Thread(target=run, daemon=True)
    asking.start()
    asking.join(PATIENCE_S)
    # A late thread is left running. It is a daemon thread, so it ends with the process.
    return list(found)
