"""``cloudml models describe``: how a service stands, what it can be asked and how, and where its
model came from.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from cloud_ml.cli.completion.candidates import model_names, model_versions
from cloud_ml.cli.display import figures
from cloud_ml.cli.display.advice import service_step
from cloud_ml.cli.display.output import (
    echo,
    echo_as,
    echo_facts,
    echo_table,
    local_time,
    output_option,
)
from cloud_ml.cli.models.calls import calls
from cloud_ml.cli.models.figures import candidate_line, replica_state, tensor_text
from cloud_ml.cli.models.names import find_name
from cloud_ml.cli.session import Session, pass_session
from cloud_ml.errors import CloudMlError

if TYPE_CHECKING:
    from cloud_ml.models.jobs.job import JobEvent
    from cloud_ml.models.services.service import Service, ServiceLineage, ServiceSignatures
    from cloud_ml.sdk.models.handles import ServiceHandle

_EVENTS = 10
_ENDED = 5


@click.command()
@click.argument("name", shell_complete=model_names)
@click.argument("version", required=False, shell_complete=model_versions)
@output_option()
@pass_session
def describe(session: Session, name: str, version: str | None, output: str | None) -> None:
    """Describe a service: its state, replicas, inputs, outputs, example calls, and the job that
    made its model.
    """
    from cloud_ml.models import codec

    handle = session.client.get_model_service(*find_name(session, name, version))
    signatures = _signatures(handle)
    service, lineage = handle.service, handle.lineage()
    tried = handle.lineage(release="candidate") if service.candidate is not None else None
    document = codec.encode(service) | {
        "signatures": None if signatures is None else codec.encode(signatures),
        "lineage": codec.encode(lineage),
        "candidate_lineage": None if tried is None else codec.encode(tried),
    }
    if echo_as(output, document, f"{service.name} {service.version}"):
        return
    now = datetime.now(UTC)
    echo_facts(_facts(service, lineage, now), painted="State")
    _show_candidate(service, tried)
    _show_replicas(service)
    _show_ended(service, now)
    if signatures is not None:
        _show_signatures(service, signatures)
    _show_origin(lineage)
    _show_events(handle.events(), now)
    if spec := {
        f"  {field}": value
        for field, value in service.spec.items()
        if value not in (None, "", {}, False, 0)
    }:
        echo("\nCreated as:")
        echo_facts(spec)
    for notice in service.notices:
        echo(f"\nNote: {notice}")
    if advice := service_step(service):
        echo(f"\n{advice}")


def _facts(service: Service, lineage: ServiceLineage, now: datetime) -> dict[str, Any]:
    running = next((one.runtime for one in service.replicas if one.runtime), "")
    loaded = (
        f"version {lineage.number}, {figures.files(lineage.files)}, {figures.size(lineage.size)}"
        if lineage.digest
        else ""
    )
    return {
        "Name": service.name,
        "Version": service.version,
        "State": service.phase,
        "Deleting": "yes" if service.deleting else "",
        "Reason": service.reason,
        "Message": service.message,
        "Address": service.address,
        "Access": service.spec.get("access", ""),
        "Replicas": f"{service.ready} of {service.wanted} answer",
        "Release": _release(service),
        "Model": service.spec.get("model_uri", ""),
        "Newest": loaded,
        "Digest": lineage.digest and f"sha256:{lineage.digest}",
        "Runtime": running,
        "Owner": f"{service.owner} of {service.org}",
        "Created": f"{local_time(service.created_at)} "
        f"({figures.span((now - service.created_at).total_seconds())} ago)",
        "Uid": service.uid,
    }


def _release(service: Service) -> str:
    """The release that is to be served, and the one that answers where that one failed."""
    if service.failed is None:
        return str(service.release or "")
    answers = next(
        (one.release for one in service.replicas if one.ready and not one.candidate), None
    )
    return f"{service.release} (failed{'' if answers is None else f'; release {answers} answers'})"


def _show_candidate(service: Service, lineage: ServiceLineage | None) -> None:
    if (tried := service.candidate) is None:
        if service.earlier:
            last = service.earlier[-1]
            echo(
                f"\nBefore: release {last.release}, {last.model_uri} (cloudml models rollback "
                "goes back to it)"
            )
        return
    echo("\nCandidate:")
    facts = {"  Stands": candidate_line(tried), "  Reason": tried.reason}
    facts |= {f"  {field}": value for field, value in tried.changes.items()}
    if lineage is not None and lineage.digest:
        facts["  Newest"] = (
            f"version {lineage.number}, {figures.files(lineage.files)}, {figures.size(lineage.size)}"
        )
        facts["  Digest"] = f"sha256:{lineage.digest}"
    echo_facts(facts)
    where = f"{service.name} {service.version}"
    echo(
        f"  Judge it: cloudml models metrics {where} · then: cloudml models promote {where}, "
        f"or rollback {where}"
    )


def _show_replicas(service: Service) -> None:
    if not service.replicas:
        return
    echo("\nReplicas:")
    rows = [
        (
            f"  {one.number}",
            replica_state(one),
            str(one.release or "-"),
            str(one.attempt),
            "candidate" if one.candidate else "" if one.current else "is being replaced",
            one.message,
        )
        for one in service.replicas
    ]
    echo_table(("  NUMBER", "STATE", "RELEASE", "ATTEMPT", "", "MESSAGE"), rows)


def _show_ended(service: Service, now: datetime) -> None:
    if not (last := service.ended[-_ENDED:]):
        return
    ran = [one.number for one in last if one.started_at is not None]
    log = (
        f" (its log: cloudml models logs {service.name} {service.version} --replica {ran[-1]})"
        if ran
        else ""
    )
    echo(f"\nReplicas that have ended{log}:")
    rows = [
        (
            f"  {one.number}",
            one.phase,
            str(one.release or "-"),
            str(one.attempt),
            f"{figures.span((now - one.finished_at).total_seconds())} ago"
            if one.finished_at
            else "-",
            one.message or one.reason,
        )
        for one in last
    ]
    echo_table(("  NUMBER", "STATE", "RELEASE", "ATTEMPT", "ENDED", "MESSAGE"), rows)


def _show_signatures(service: Service, found: ServiceSignatures) -> None:
    for signature in found.items:
        echo(f"\nSignature {signature.name}:")
        echo_facts({
            "  takes": " · ".join(map(tensor_text, signature.inputs)),
            "  gives": " · ".join(map(tensor_text, signature.outputs)),
        })  # fmt: skip
    if service.address and found.items:
        echo("\nAsk it:")
        for tool, line in calls(service, found.items[0]):
            echo(f"  # {tool}\n  {line}")


def _show_origin(lineage: ServiceLineage) -> None:
    if not lineage.jobs:
        return
    echo("\nExported by:")
    rows = [
        (
            f"  {one.name}",
            one.phase,
            local_time(one.finished_at),
            one.trainer_uri,
            ", ".join(one.data) or "-",
        )
        for one in lineage.jobs
    ]
    echo_table(("  JOB", "STATE", "FINISHED", "CODE", "DATA"), rows)


def _show_events(events: Sequence[JobEvent], now: datetime) -> None:
    if last := events[-_EVENTS:]:
        echo(
            "\nEvents:"
            if len(last) == len(events)
            else f"\nThe last {len(last)} of {len(events)} events:"
        )
        rows = [
            (
                f"  {figures.span((now - event.at).total_seconds())} ago",
                event.type,
                event.reason,
                event.message,
            )
            for event in last
        ]
        echo_table(("  WHEN", "TYPE", "REASON", "MESSAGE"), rows)


def _signatures(handle: ServiceHandle) -> ServiceSignatures | None:
    """What a replica tells; nothing where none answers, which the state says already."""
    if handle.service.ready:
        with contextlib.suppress(CloudMlError):
            return handle.signatures()
    return None
