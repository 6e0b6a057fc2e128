"""``cloudml doctor``: what this machine gives to jobs, what is missing, and how to get it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import click

from cloud_ml.errors import Unavailable


@click.command(help="Show which isolation and limits this machine gives to jobs, and how to get what is missing.")
def doctor() -> None:
    try:
        from cloud_ml.bootstrap import find_uv
        from cloud_ml.engines.local.probe import in_force, probe
    except ImportError as error:
        raise Unavailable(
            f"the server's parts are not installed ({error.name} is missing)", hint="pip install 'cloud-ml[server]'"
        ) from error
    from cloud_ml.settings import load

    settings = load(environment=os.environ)
    with tempfile.TemporaryDirectory() as folder:
        root = settings.data_dir if settings.data_dir.exists() else Path(folder)
        findings = probe(settings.engine, root=root / "engine", environments_home=root, runtimes_dir=root, uv=find_uv())
    for fence, stands in in_force(findings.config, settings.engine.network).items():
        click.echo(f"{fence.replace('_', ' '):14} {stands}")
    for sentence in findings.missing:
        click.echo(f"missing        {sentence}")
    if not findings.missing:
        click.echo("missing        nothing")
