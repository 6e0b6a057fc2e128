"""``cloudml framework``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cloud_ml.cli.completion.candidates import framework_names
from cloud_ml.cli.display.output import echo, echo_as, echo_facts, echo_table, note, output_option
from cloud_ml.cli.lazy import LazyGroup
from cloud_ml.cli.session import Session, pass_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloud_ml.models.jobs.framework import Runtime

_NAME = click.argument("name", metavar="NAME", shell_complete=framework_names)
_VERSION = click.argument("version", required=False)


@click.group(cls=LazyGroup)
def framework() -> None:
    """Frameworks that jobs can use."""


@framework.command("list")
@output_option()
@pass_session
def list_frameworks(session: Session, output: str | None) -> None:
    """List frameworks and their versions, for -F and -V of `jobs submit`.

    One that is not ready is installed when a job first needs it.
    """
    found = session.client.runtimes()
    if echo_as(output, found, [f"{one.name}=={one.version}" for one in found]):
        return
    rows = [
        (
            one.name,
            one.version + (" (default)" if one.default else ""),
            one.python or "-",
            "yes" if one.ready else "no",
            _size(one),
            one.summary,
        )
        for one in found
    ]
    echo_table(("FRAMEWORK", "VERSION", "PYTHON", "READY", "SIZE", "WHAT"), rows)


@framework.command("describe")
@_NAME
@_VERSION
@output_option()
@pass_session
def describe(session: Session, name: str, version: str | None, output: str | None) -> None:
    """Show what a framework brings: interpreter, packages, variables.

    \b
    cloudml framework describe pytorch
    cloudml framework describe pytorch 2.13

    Without a version the default one is shown, and the others are named. NAME==VERSION is the same.
    """
    framework_name, version = _parts(name, version)
    family = session.client.runtimes(framework_name)
    one = _chosen(family, framework_name, version)
    if echo_as(output, one, f"{one.name}=={one.version}"):
        return
    echo_facts(
        {
            "Framework": one.name,
            "Version": one.version,
            "Other names": ", ".join(
                [*(f"-F {name}" for name in one.aliases), *(f"-V {v}" for v in one.accepts)]
            ),
            "Other versions": ", ".join(each.version for each in family if each is not one),
            "Summary": one.summary,
            "Python": one.python,
            "Ready": f"yes, {_size(one)}"
            if one.ready
            else "no: installed when a job first needs it",
            "Added to memory": f"{one.base_memory // 2**20}M" if one.base_memory else "",
            "Sets": ", ".join(f"{name}={value}" for name, value in one.environment.items()),
            "Sets to cores": ", ".join(one.threads),
            "Imported ahead": ", ".join(one.preload)
            and f"{', '.join(one.preload)}, where the operator allows it",
            "Requires": ", ".join(one.requires),
        }
    )
    if one.packages:
        echo("Packages:")
        for package in one.packages:
            echo(f"  {package}")


@framework.command("prepare")
@_NAME
@_VERSION
@pass_session
def prepare(session: Session, name: str, version: str | None) -> None:
    """Install a framework on the server before a job needs it. For administrators.

    Ctrl-C stops the output, not the preparation.
    """
    from cloud_ml.cli.display.installing import Installing
    from cloud_ml.cli.display.progress import spinner
    from cloud_ml.cli.display.states import installation
    from cloud_ml.errors import Unavailable

    framework_name, version = _parts(name, version)
    last, installing = None, Installing()
    what = " ".join(filter(None, (framework_name, version)))
    with spinner(f"Preparing {what}") as say:
        for line in session.client.prepare_framework(framework_name, version):
            last = line
            if line.message and line.runtime is None and line.error is None:
                installing.feed(line.message.encode() + b"\n")
                now = installing.now
                say(f"Preparing {what}: {installation(now) if now else line.message}")
                note(line.message)
    if last is None or last.runtime is None:
        why = (
            last.error
            if last is not None and last.error
            else "the connection ended before the preparation did"
        )
        raise Unavailable(why, hint="run it again to see its progress")
    done = last.runtime
    echo(
        f"{done.name} {done.version} is ready: {len(done.packages)} packages, {_size(done)}, "
        f"Python {done.python}"
    )


@framework.command("remove")
@_NAME
@_VERSION
@pass_session
def remove(session: Session, name: str, version: str | None) -> None:
    """Remove what is installed of a framework from the server. For administrators.

    What a job uses stays. The next job that needs the framework installs it again.
    """
    framework_name, version = _parts(name, version)
    session.client.remove_framework(framework_name, version)
    echo(f"{' '.join(filter(None, (framework_name, version)))} is removed from the server's disk")


def _parts(name: str, version: str | None) -> tuple[str, str | None]:
    """``pytorch 2.13`` and ``pytorch==2.13`` as name and version."""
    framework_name, equals, after = (part.strip() for part in name.partition("=="))
    if not framework_name or (equals and not after):
        raise click.BadParameter(
            f"{name!r}; allowed: a framework, or framework==version", param_hint="NAME"
        )
    if equals and version is not None:
        raise click.BadParameter(
            f"{version!r}; {name} names a version already", param_hint="VERSION"
        )
    return framework_name, version or after or None


def _chosen(family: Sequence[Runtime], framework_name: str, version: str | None) -> Runtime:
    import fnmatch

    from cloud_ml.errors import NotFound

    for one in family:
        if (
            one.default
            if version is None
            else version == one.version
            or any(fnmatch.fnmatchcase(version, each) for each in one.accepts)
        ):
            return one
    if version is None and family:
        return family[0]
    there = ", ".join(one.version for one in family)
    raise NotFound(
        f"{framework_name} {version} is not offered; there is {there}",
        field="version",
        value=version,
        allowed=there,
    )


def _size(one: Runtime) -> str:
    from cloud_ml.cli.display.figures import size

    return size(one.size_bytes) if one.size_bytes else "-"
