"""``cloudml runs import`` and ``runs export``."""

from __future__ import annotations

from pathlib import Path

import click

from cloud_ml.cli.display.output import note
from cloud_ml.cli.session import Session, pass_session
from cloud_ml.errors import CloudMlError, InvalidRequest, NotFound


class IncompleteImport(CloudMlError):
    """Some runs could not be imported."""

    code = "incomplete_import"


@click.command("import")
@click.argument("store", type=click.Path(path_type=Path))
@click.option("--experiment", "-e", metavar="NAME", help="Only the runs of this experiment.")
@click.option(
    "--artifacts",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Of a database: the folder with the artifacts. By default mlruns or mlartifacts beside it.",
)
@pass_session
def import_runs(
    session: Session, store: Path, *, experiment: str | None, artifacts: Path | None
) -> None:
    """Import runs and models of MLflow: a folder mlruns, or a database mlflow.db of SQLite.

    Experiments, runs with their parents, parameters, tags, all points of metrics, and artifacts are
    imported, as are logged models, and registered models with their versions, tags and aliases.
    What was imported before is left alone, and an import that was interrupted goes on.
    """
    from cloud_ml.cli.mlflow_stores.database_store import DatabaseStore
    from cloud_ml.cli.mlflow_stores.folder_store import FolderStore
    from cloud_ml.cli.mlflow_stores.run_import import RunImport
    from cloud_ml.cli.mlflow_stores.safe_files import alone

    if not store.exists():
        raise InvalidRequest(
            f"there is no {store}", field="store", value=str(store),
            allowed="a folder mlruns, or a file mlflow.db",
        )  # fmt: skip
    if store.is_dir() and artifacts is not None:
        raise click.UsageError("--artifacts is for a database; a folder has its artifacts in it")
    found = FolderStore(store) if store.is_dir() else DatabaseStore(store, artifacts)
    with alone(store):
        result = RunImport(session.client, found, note).run(experiment)
    for text in result.notes:
        note(text)
    note(
        f"{result.made} runs were imported, {result.continued} continued, {result.unchanged} were "
        f"here already; {result.files} files of artifacts were sent."
    )
    note(
        f"{result.models} logged models and {result.versions} versions of registered models were "
        "imported."
    )
    if result.failed:
        raise IncompleteImport("these are not complete:\n" + "\n".join(result.failed))


@click.command("export")
@click.option("--experiment", "-e", metavar="NAME", help="Only this experiment; all by default.")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="The folder, such as mlruns.",
)
@pass_session
def export_runs(session: Session, *, experiment: str | None, output: Path) -> None:
    """Export runs to a folder that MLflow reads as its store: mlflow ui --backend-store-uri FOLDER.

    Jobs are runs, too. Logged models go with their experiments, and registered models whose files
    are among them. An export may be repeated: it brings the folder up to date.
    """
    from cloud_ml.cli.mlflow_stores.run_export import RunExport

    there = session.client.runs.experiments()
    selected = [one for one in there if experiment in (None, one.name)]
    if not selected:
        raise NotFound(
            f"there is no experiment {experiment}", field="experiment", value=experiment,
            hint="runs experiments lists them.",
        )  # fmt: skip
    result = RunExport(session.client, output, note).run(selected)
    for text in result.omitted:
        note(f"left out: {text}")
    note(
        f"{result.runs} runs are in {output}, with {result.files} files of artifacts fetched, and "
        f"{result.models} logged models."
    )
