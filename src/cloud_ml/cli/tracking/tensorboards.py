"""``cloudml tensorboard``: TensorBoards on folders, jobs and studies."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

import click

from cloud_ml.cli.completion.candidates import job_names, names_of
from cloud_ml.cli.display.output import echo, echo_as, note, output_option
from cloud_ml.cli.options.base import Option
from cloud_ml.cli.options.numbers import WholeNumber
from cloud_ml.cli.resource_group import resource_group
from cloud_ml.cli.session import Session, pass_session
from cloud_ml.models.tracking.tensorboard import TENSORBOARDS, NewTensorBoard, OpenedTensorBoard

tensorboards = resource_group(TENSORBOARDS)


@tensorboards.command("create", help="Create a TensorBoard on a folder, on jobs or on a study.")
@click.argument("name", required=False)
@click.option(
    "-n", "--name", "named", cls=Option, aliases=("--tensorboard_name",), help="Its name."
)
@click.option("-l", "--logdir", metavar="URI", help="A folder: fds://BUCKET/PATH.")
@click.option(
    "-j",
    "--job",
    "jobs",
    multiple=True,
    metavar="JOB",
    shell_complete=job_names,
    help="A job; repeat it for several in one TensorBoard.",
)
@click.option("--study", metavar="STUDY", help="All trials of a study.")
@click.option("-c", "--cpu_limit", metavar="CORES", help="Cores that it may use.")
@click.option("-M", "--memory_limit", metavar="SIZE", help="Memory that it may use; 2G by default.")
@output_option()
@pass_session
def create(
    session: Session,
    *,
    name: str | None,
    named: str | None,
    logdir: str | None,
    jobs: tuple[str, ...],
    study: str | None,
    cpu_limit: str | None,
    memory_limit: str | None,
    output: str | None,
) -> None:
    """Create a TensorBoard."""
    chosen = named or name
    if chosen is None or (named and name):
        raise click.UsageError("give one name: cloudml tensorboard create -n NAME ...")
    made = session.client.tensorboards.create(
        NewTensorBoard(
            name=chosen,
            logdir=logdir or "",
            jobs=list(jobs),
            study=study or "",
            cpu_limit=cpu_limit,
            memory_limit=memory_limit,
        )
    )
    if not echo_as(output, made, made.name):
        echo(f"the tensorboard {made.name} is created")
        note(f"Open it in a browser: cloudml tensorboard open {made.name}")


@tensorboards.command("open", help="Print a URL that opens a TensorBoard in a browser, once.")
@click.argument("name", shell_complete=names_of(TENSORBOARDS))
@click.option("-b", "--browser", is_flag=True, help="Also start the browser of this machine.")
@output_option()
@pass_session
def open_in_browser(session: Session, *, name: str, browser: bool, output: str | None) -> None:
    """Print the URL, and what else is needed to reach it."""
    client = session.client
    opened = client.tensorboards.open(name)
    if echo_as(output, opened, opened.url):
        return
    echo(opened.url)
    board = client.tensorboards.describe(name)
    if board.phase == "Queued" and board.reason != "Submitted":
        note(
            f"{name} waits for room, and the page stays empty until it runs: "
            f"{board.message or board.reason}"
        )
    host = urlsplit(client.endpoint).hostname or ""
    note("It works once, for a minute. The browser then stays signed in to this TensorBoard.")
    if opened.local and not _is_here(host):
        note(
            f"{urlsplit(opened.url).hostname} means the machine of your browser. Forward the port "
            f"first, in another terminal:\n  {_forward(opened, host)}"
        )
    if browser:
        click.launch(opened.url)


@tensorboards.command("logs", help="Print the output of a TensorBoard.")
@click.argument("name", shell_complete=names_of(TENSORBOARDS))
@click.option("-f", "--follow", is_flag=True, help="Follow the output. Ctrl-C stops it.")
@click.option("-n", "--lines", type=WholeNumber(0), help="Only this many last lines.")
@pass_session
def logs(session: Session, *, name: str, follow: bool, lines: int | None) -> int:
    """Print what it has written, as it was written."""
    from cloud_ml.cli.display.watching import print_log

    chunks = session.client.tensorboards.logs(name, follow=follow, lines=lines)
    return max(0, print_log(iter(chunks), name, goes_on=False))


def _is_here(host: str) -> bool:
    """Whether the server is on this machine, and so is the browser: not in a session of SSH."""
    here = host in ("localhost", "::1") or host.startswith("127.")
    return here and "SSH_CONNECTION" not in os.environ


def _forward(opened: OpenedTensorBoard, host: str) -> str:
    """The command that makes the port of the server's machine one of the browser's."""
    port = urlsplit(opened.url).port or 80
    here = host in ("localhost", "::1", "") or host.startswith("127.")
    target = os.uname().nodename if here else host
    return f"ssh -N -L {port}:127.0.0.1:{opened.port} {target}"
