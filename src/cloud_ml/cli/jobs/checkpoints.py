"""``cloudml jobs checkpoints``: what a job could go on from."""

from __future__ import annotations

import click

from cloud_ml.cli.completion.candidates import job_names
from cloud_ml.cli.display import figures
from cloud_ml.cli.display.output import echo_as, echo_table, local_time, note, output_option
from cloud_ml.cli.session import Session, pass_session


@click.command()
@click.argument("name", shell_complete=job_names)
@output_option()
@pass_session
def checkpoints(session: Session, name: str, output: str | None) -> None:
    """List the checkpoints that a job has saved and that are still there, the oldest first.

    Code reports one with cloud_ml.job.saved(path, step). Those of TensorFlow are found without
    that, and so is what gets its final name by a rename.
    """
    found = session.client.train_job_checkpoints(name)
    if echo_as(output, found, (one.uri for one in found)):
        return
    if not found:
        note(
            f"{name} has no checkpoint. A checkpoint is a file or folder in CLOUDML_CHECKPOINT_DIR "
            f"that its code reported with cloud_ml.job.saved(path, step), or wrote under a temporary "
            f"name and renamed then. If it was removed, `cloudml jobs events {name}` tells"
        )
        return
    rows = [
        (
            one.path,
            "" if one.step is None else str(one.step),
            figures.size(one.size),
            local_time(one.saved_at),
            "" if one.attempt is None else str(one.attempt),
        )
        for one in found
    ]
    echo_table(("PATH", "STEP", "SIZE", "SAVED", "ATTEMPT"), rows)
    note(f"They are in {found[-1].uri.removesuffix('/' + found[-1].path)}")
