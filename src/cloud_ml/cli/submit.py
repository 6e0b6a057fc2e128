"""``cloudml jobs submit``, as both generations of the command write it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cloud_ml.cli import exit_codes
from cloud_ml.cli.advice import next_step
from cloud_ml.cli.defaults import looks_like_code, module_for, name_for
from cloud_ml.cli.job_options import RESOURCES, field_options, given_fields
from cloud_ml.cli.output import echo, echo_as, echo_document, note, output_option, without_secrets
from cloud_ml.cli.progress import bar, spinner
from cloud_ml.cli.session import Session, pass_session
from cloud_ml.errors import AlreadyExists, InvalidRequest

if TYPE_CHECKING:
    from cloud_ml.models.train_job import TrainJob
    from cloud_ml.sdk.handles import JobHandle
    from cloud_ml.sdk.progress import Progress

_BEHIND = "cloud_ml.cli.submit.behind"
_MOST_NAMES = 20
REQUIRED = ("job_name", "module_name", "trainer_uri")


class SubmitCommand(click.Command):
    """Says where the trainer's arguments go when one of them was taken for an option of ours."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        before, after = (args[: args.index("--")], args[args.index("--") + 1 :]) if "--" in args else (args, [])
        ctx.meta[_BEHIND] = after
        try:
            return super().parse_args(ctx, before)
        except click.NoSuchOption as error:
            told = f"{error.message} Arguments of the trainer go behind `--`."
            raise click.NoSuchOption(error.option_name, told, error.possibilities, ctx=error.ctx) from None


def _refuse_argo_mode(_ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        raise click.UsageError(
            "--argo_mode is not offered: --model_name and --model_version ask for a model service after the job"
        )


@click.command(cls=SubmitCommand, epilog=exit_codes.HELP)
@click.argument("words", nargs=-1, metavar="[NAME MODULE URI] [-- ARGS...]")
@field_options
@click.option(
    "-f", "--filename", type=click.Path(path_type=Path), help="Job file (JSON, TOML, YAML); options override it."
)
@click.option("-cs", "--cluster_spec", metavar="JSON", help='Roles: {"worker": {"count": 2, "cpu_limit": "1"}, …}.')
@click.option("-D", "--distributed", is_flag=True, help="Ask for the roles of a distributed job.")
@click.option(
    "--env",
    "environment",
    multiple=True,
    metavar="NAME=VALUE",
    help="Environment variable of the job; NAME alone hands on yours.",
)
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Label to find the job by.")
@click.option("-argo", "--argo_mode", is_flag=True, hidden=True, expose_value=False, callback=_refuse_argo_mode)
@click.option("-W", "--watch", is_flag=True, help="Follow the log, then exit as the job did.")
@click.option("--dry-run", is_flag=True, help="Check everything here and print the job; nothing is sent.")
@output_option()
@pass_session
def submit(
    session: Session,
    /,
    words: tuple[str, ...],
    *,
    filename: Path | None,
    cluster_spec: str | None,
    distributed: bool,
    environment: tuple[str, ...],
    labels: tuple[str, ...],
    watch: bool,
    dry_run: bool,
    output: str | None,
    **options: Any,
) -> int:
    r"""Submit a train job.

    \b
    cloudml jobs submit .
    cloudml jobs submit linear trainer.task ./linear -- --epochs 3
    cloudml jobs submit -n linear -m trainer.task -u fds://cloudml/linear.tar.gz -c 0.5 -M 100M

    NAME, MODULE and URI are taken in this order for those that neither an option nor the job file
    gives. A local folder or file is packed and uploaded, unless the server has it already. With the
    URI alone, the name comes from the folder or file and the module from the code, where it leaves
    no doubt: a script, trainer.task, a package with a __main__.py.
    """  # fmt: skip
    from cloud_ml.cli.jobfile import read_job_file
    from cloud_ml.models import codec
    from cloud_ml.models.train_job import TrainJob

    fields = read_job_file(filename) if filename else {}
    fields |= given_fields(options)
    fields |= _roles(cluster_spec, distributed, fields)
    fields |= _pairs_field("environment", fields, environment)
    fields |= _pairs_field("labels", fields, labels)
    fields = with_words(fields, words, click.get_current_context().meta.get(_BEHIND, ()))
    named = "job_name" in fields
    job = codec.decode(TrainJob, with_defaults(fields))
    if dry_run:
        _rehearse(job)
        return 0
    return send(session, job, named=named, watch=watch, output=output)


def with_words(fields: dict[str, Any], words: Sequence[str], behind: Sequence[str] = ()) -> dict[str, Any]:
    """``fields`` completed from what stands on the command line without an option.

    The first words are the name, the module and the URI, as far as these are missing; with fewer words
    than that, one that looks like code is the URI. The others, and what stands ``behind`` a ``--``, are
    the trainer's arguments.

    Raises:
        UsageError: There is no code, or arguments are given in two ways.
    """
    fields, words = dict(fields), list(words)
    missing = [name for name in REQUIRED if name not in fields]
    if words and len(words) < len(missing) and missing[-1] == "trainer_uri" and looks_like_code(words[-1]):
        fields["trainer_uri"] = words.pop()
    for name in REQUIRED:
        if name not in fields and words:
            fields[name] = words.pop(0)
    if "trainer_uri" not in fields:
        missing_now = ", ".join(one for one in REQUIRED if one not in fields)
        raise click.UsageError(
            f"missing: {missing_now}. Usual is: cloudml jobs submit NAME MODULE URI, "
            "or in the folder of the code: cloudml jobs submit ."
        )
    arguments = [*words, *behind]
    if arguments:
        if "job_args" in fields:
            raise click.UsageError(f"arguments are given twice: as job_args and as {' '.join(arguments)!r}")
        fields["job_args"] = arguments
    return fields


def with_defaults(fields: dict[str, Any]) -> dict[str, Any]:
    """``fields`` with the name and the module that the code suggests, where none is given.

    Raises:
        InvalidRequest: It suggests none, or several.
    """
    uri = fields.get("trainer_uri")
    if not isinstance(uri, str) or not uri:
        return fields  # refused by the job itself
    fields = dict(fields)
    if "module_name" not in fields:
        fields["module_name"] = module_for(uri)
    if "job_name" not in fields:
        fields["job_name"] = name_for(uri)
    return fields


def read_pairs(option: str, pairs: Sequence[str], surroundings: dict[str, str] | None = None) -> dict[str, str]:
    """``NAME=VALUE`` texts as a mapping. With ``surroundings``, a name alone takes its value from there.

    Raises:
        UsageError: There is no '=', or no such variable to hand on.
    """
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            if surroundings is None or name not in surroundings:
                raise click.UsageError(f"{option} is {pair!r}; allowed is NAME=VALUE")
            value = surroundings[name]
        found[name] = value
    return found


def _pairs_field(name: str, fields: dict[str, Any], pairs: Sequence[str]) -> dict[str, Any]:
    if not pairs:
        return {}
    if name == "environment":
        return {name: {**(fields.get(name) or {}), **read_pairs("--env", pairs, dict(os.environ))}}
    return {name: {**(fields.get(name) or {}), **read_pairs("--label", pairs)}}


def _roles(cluster_spec: str | None, distributed: bool, fields: dict[str, Any]) -> dict[str, Any]:
    if distributed:
        if cluster_spec or (both := [name for name in RESOURCES if name in fields]):
            other = "--cluster_spec" if cluster_spec else ", ".join(f"--{name}" for name in both)
            raise click.UsageError(f"--distributed asks for the limits of each role; leave out {other}")
        from cloud_ml.cli.roles import ask_for_roles

        return {"cluster_spec": ask_for_roles()}
    if cluster_spec is None:
        return {}
    try:
        return {"cluster_spec": json.loads(cluster_spec)}
    except ValueError as error:
        raise InvalidRequest(
            f"cluster_spec is no JSON: {error}",
            field="cluster_spec",
            value=cluster_spec,
            allowed='an object such as {"worker": {"count": 2}}',
        ) from error


def _rehearse(job: TrainJob) -> None:
    from cloud_ml.models import codec
    from cloud_ml.sdk.packaging import packed
    from cloud_ml.sdk.trainers import is_local

    if is_local(job.trainer_uri):
        with packed(Path(job.trainer_uri).expanduser()) as package:
            body = package.body
            note(f"{job.trainer_uri} would be sent as {package.name}: {body.size} bytes, sha256 {body.sha256}")
    echo_document(without_secrets(codec.encode(job)))


def send(session: Session, job: TrainJob, *, named: bool, watch: bool, output: str | None) -> int:
    """Submit a job, say so, and follow it if that is asked for; returns the exit code.

    With ``named`` false the name is ours: where it is taken, a number is put behind it.
    """
    handle = _submitted(session, job, named=named)
    from cloud_ml.models import codec

    document = {**codec.encode(handle.job), "spec": without_secrets(handle.job.spec)}
    if not echo_as(output, document, handle.name):
        if watch:
            note(f"{handle.name} is submitted ({handle.phase}). Ctrl-C ends the output, not the job.")
        else:
            echo(f"{handle.name} is submitted ({handle.phase})")
            note(next_step(handle.job) if handle.phase == "Saved" else f"Follow it: cloudml jobs logs {handle.name} -f")
    if not watch or handle.phase == "Saved":
        return 0
    from cloud_ml.cli.watching import watch as follow

    return follow(session.client, handle)


def _submitted(session: Session, job: TrainJob, *, named: bool) -> JobHandle:
    first = job.job_name
    for number in range(2, _MOST_NAMES + 1):
        try:
            with sending(job.trainer_uri) as progress:
                return session.client.submit_train_job(job, progress=progress)
        except AlreadyExists as error:
            if named:
                error.hint = error.hint or "Choose another name, or remove that job: cloudml jobs delete " + first
                raise
            job.job_name = f"{first}-{number}"
    raise AlreadyExists(
        f"{first} and {_MOST_NAMES - 1} names like it are taken", field="job_name", hint="Give one: -n NAME."
    )


@contextmanager
def sending(trainer_uri: str) -> Iterator[Progress]:
    """Show that code is packed, then how far its upload is; nothing for code that is on the server."""
    from cloud_ml.sdk.trainers import is_local

    if not is_local(trainer_uri):
        yield lambda _done, _total: None
        return
    label = Path(trainer_uri).expanduser().resolve().name
    with ExitStack() as shown:
        shown.enter_context(spinner(f"Packing {label}"))
        bars: list[Progress] = []

        def tell(done: int, total: int | None) -> None:
            if not bars:
                shown.pop_all().close()
                bars.append(shown.enter_context(bar(f"Uploading {label}", total)))
            bars[0](done, total)

        yield tell
