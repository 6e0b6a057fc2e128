"""``cloudml storage``: buckets, and objects such as ``fds://bucket/path``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cloud_ml.cli.display.figures import size as readable
from cloud_ml.cli.display.output import echo, echo_as, echo_table, local_time, note, output_option
from cloud_ml.cli.lazy import LazyGroup
from cloud_ml.cli.options.base import EXPIRES_ALIASES, Option
from cloud_ml.cli.session import Session, pass_session
from cloud_ml.errors import CloudMlError, InvalidRequest, NotFound, TransportError

if TYPE_CHECKING:
    from cloud_ml.models.storage.objects import Bucket, StoredObject, UnnameableObject
    from cloud_ml.sdk.answers import Answer
    from cloud_ml.sdk.storage.client import Storage

SCHEME = "fds://"
_HUMAN = click.option("-h", "human", is_flag=True, help="Sizes as people read them.")
_YES = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Only print what would be done.")
_REMOVE_FOLDER = "remove it with `cloudml storage rm -r`"
_REMOVE_BUCKET = "remove it with `cloudml storage rb {}`, or only all that is in it with rm -r"
_OWN_H = {"help_option_names": ["--help"]}


@click.group(cls=LazyGroup)
def storage() -> None:
    """Buckets, and objects such as fds://bucket/path."""


@storage.command(context_settings=_OWN_H)
@click.argument("uris", nargs=-1, metavar="[URI]...")
@click.option("-r", "-R", "--recursive", is_flag=True, help="Everything below, not one level.")
@click.option("-l", "long", is_flag=True, help="ETags of objects, owners of buckets, too.")
@_HUMAN
@output_option()
@pass_session
def ls(
    session: Session,
    *,
    uris: tuple[str, ...],
    recursive: bool,
    long: bool,
    human: bool,
    output: str | None,
) -> None:
    """List buckets, or the objects whose URI starts with URI, which may be a pattern."""
    store, shown = session.client.storage, readable if human else str
    if not uris:
        _list_buckets(store.list_buckets(), output, long=long)
        return
    found = [entry for uri in uris for entry in _entries(store, uri, recursive=recursive)]
    documents = [one if not isinstance(one, str) else {"folder": one} for one in found]
    if echo_as(output, documents, (_name(one) for one in found)):
        return
    table = [(one, "", "", "") if isinstance(one, str) else
             (one.uri, shown(one.size), local_time(one.modified), getattr(one, "etag", ""))
             for one in found]  # fmt: skip
    _echo_columns(("NAME", "SIZE", "MODIFIED", "ETAG"), table, long=long)


def _list_buckets(buckets: Sequence[Bucket], output: str | None, *, long: bool) -> None:
    if echo_as(output, buckets, (bucket.name for bucket in buckets)):
        return
    rows = [(one.name, local_time(one.created_at), one.owner, one.org) for one in buckets]
    _echo_columns(("NAME", "CREATED", "OWNER", "ORG"), rows, long=long)


def _echo_columns(header: tuple[str, ...], rows: Sequence[tuple[str, ...]], *, long: bool) -> None:
    """Write a table; its last column only in the ``long`` form."""
    shown = slice(None) if long else slice(-1)
    echo_table(header[shown], [row[shown] for row in rows])


@storage.command()
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.argument("target")
@click.option(
    "-r", "-R", "--recursive", is_flag=True, help="Copy folders with everything below them."
)
@click.option(
    "-u", "--update", "--sync", is_flag=True, help="Skip what is there already, by size and digest."
)
@_DRY_RUN
@pass_session
def cp(
    session: Session,
    *,
    sources: tuple[str, ...],
    target: str,
    recursive: bool,
    update: bool,
    dry_run: bool,
) -> int:
    """Copy files to objects, objects to files, or objects to objects (on the server).

    A TARGET that ends in '/', or is a folder or a bucket, keeps the names of the SOURCES. Several
    SOURCES need such a TARGET. With -r, the content of a folder is copied below TARGET. In URIs, *
    and ? match parts of a name, and ** matches any path; quote them. '-' is standard input or
    output.

    Nothing is copied if two SOURCES would become one file, or if a SOURCE is its own TARGET.

    To resume interrupted copies of large files, run the same command again. Files whose path cannot
    be a key (control characters, backslashes, over 1024 bytes), and links to folders, are skipped
    and named.
    """
    return _copy(session, sources, target, recursive=recursive, update=update, dry_run=dry_run)


@storage.command()
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.argument("target")
@click.option(
    "-r", "-R", "--recursive", is_flag=True, help="Copy folders with everything below them."
)
@_DRY_RUN
@pass_session
def mv(
    session: Session, sources: tuple[str, ...], target: str, recursive: bool, dry_run: bool
) -> int:
    """Copy as cp does, and remove each source once its copy is verified.

    A source that changed meanwhile is copied, but not removed; the command fails then. Nothing is
    moved if a source is its own target, or if two sources have one target.
    """
    return _copy(session, sources, target, recursive=recursive, dry_run=dry_run, move=True)


@storage.command()
@click.argument("uris", nargs=-1, required=True, metavar="URI...")
@pass_session
def cat(session: Session, uris: tuple[str, ...]) -> None:
    """Write objects to standard output, one after the other. A URI may be a pattern."""
    from cloud_ml.cli.storage.plan import is_pattern, matching

    store = session.client.storage
    for uri in uris:
        for one in [found.uri for found in matching(store, uri)] if is_pattern(uri) else [uri]:
            with _open(store, one) as content:
                for chunk in content:
                    sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()


@storage.command()
@click.argument("uris", nargs=-1, required=True, metavar="URI...")
@click.option(
    "-r", "-R", "--recursive", is_flag=True, help="Everything below a folder or a bucket."
)
@_YES
@_DRY_RUN
@pass_session
def rm(session: Session, uris: tuple[str, ...], recursive: bool, yes: bool, dry_run: bool) -> int:
    """Remove objects. There is no way back. A URI may be a pattern; emptying a whole bucket asks
    first.
    """
    store, failed = session.client.storage, 0
    whole = [uri for uri in uris if recursive and "/" not in uri.removeprefix(SCHEME).rstrip("/")]
    if whole and not dry_run:
        _note_dependents(session, whole)
        _confirm(f"Remove everything in {', '.join(whole)}?", yes)
    for uri in uris:
        try:
            for one in _to_remove(store, uri, recursive=recursive):
                if not dry_run:
                    (store.delete_unnameable if "\\" in one else store.delete)(one)
                echo(f"{'would remove' if dry_run else 'removed'} {one}")
        except (CloudMlError, click.UsageError) as error:
            if len(uris) == 1:
                raise
            note(f"cloudml: {uri}: {error.message}")
            failed = 1
    return failed


@storage.command()
@click.argument("names", nargs=-1, required=True, metavar="BUCKET...")
@pass_session
def mb(session: Session, names: tuple[str, ...]) -> None:
    """Make buckets. One that you have already stays as it is."""
    for name in names:
        session.client.storage.create_bucket(_bucket(name))
        echo(f"{SCHEME}{_bucket(name)}")


@storage.command()
@click.argument("names", nargs=-1, required=True, metavar="BUCKET...")
@click.option("--force", is_flag=True, help="Remove them with everything in them.")
@_YES
@pass_session
def rb(session: Session, names: tuple[str, ...], force: bool, yes: bool) -> None:
    """Remove buckets. One that holds objects stays, unless --force is given."""
    store = session.client.storage
    if force:
        _note_dependents(session, names)
        _confirm(
            f"Remove {', '.join(names)} with everything in {'it' if len(names) == 1 else 'them'}?",
            yes,
        )
    for name in map(_bucket, names):
        try:
            store.delete_bucket(name, force=force)
        except CloudMlError as error:
            if "holds" in error.message and error.hint is None:
                error.hint = f"`cloudml storage rb --force {name}` removes what is in it, too."
            raise
        echo(f"removed {SCHEME}{name}")


@storage.command(context_settings=_OWN_H)
@click.argument("uris", nargs=-1, metavar="[URI]...")
@_HUMAN
@output_option()
@pass_session
def du(session: Session, uris: tuple[str, ...], human: bool, output: str | None) -> None:
    """Tell how much is stored: in all buckets, or below each URI. The server counts; figures may
    be a minute old.
    """
    store, shown = session.client.storage, readable if human else str
    items = [store.usage_below(uri) for uri in uris] if uris else store.usage().items
    names = [f"{SCHEME}{one.bucket}/{one.prefix}" for one in items]
    if echo_as(output, items, names):
        return
    rows = [(name, str(one.objects), _at_least(shown(one.bytes), one.complete))
            for name, one in zip(names, items, strict=True)]  # fmt: skip
    if len(items) != 1:
        whole = all(one.complete for one in items)
        rows.append(("total", str(sum(one.objects for one in items)),
                     _at_least(shown(sum(one.bytes for one in items)), whole)))  # fmt: skip
    echo_table(("NAME", "OBJECTS", "SIZE" if human else "BYTES"), rows)


@storage.command()
@click.argument("uri")
@click.option(
    "--expires",
    cls=Option,
    aliases=EXPIRES_ALIASES,
    default="1h",
    show_default=True,
    help="How long it works: 30m, 1h, 7d; a number alone means seconds.",
)
@click.option("--method", default="GET", show_default=True, type=click.Choice(["GET", "PUT"], case_sensitive=False),
              help="GET reads the object, PUT writes it.")  # fmt: skip
@pass_session
def presign(session: Session, uri: str, expires: str, method: str) -> None:
    """Print a link that opens an object for anybody who has it, without a key.

    It ends when its time is over or your key is revoked. The server limits how long a link may
    last: to 7 days, unless set otherwise. With PUT: curl -T FILE 'LINK'.
    """
    from datetime import UTC, datetime, timedelta

    from cloud_ml.models.common import check_duration, duration_seconds, refuse

    seconds = duration_seconds(check_duration("expires", expires))
    limit_s = _link_limit_s(session)
    if seconds > limit_s:
        days, rest = divmod(limit_s, 86_400)
        shown = f"{limit_s:g}s" if rest else f"{days:g}d"
        raise refuse("expires", expires, f"at most {shown}, the limit of the server")
    link = session.client.storage.presign(
        uri, expires_s=seconds, method=method.upper(), limit_s=limit_s
    )
    echo(link)
    note(f"The link works until {local_time(datetime.now(UTC) + timedelta(seconds=seconds))}.")


def _link_limit_s(session: Session) -> float:
    """The server's limit, or what it usually is where the server is away: links need none."""
    from cloud_ml.models.storage.objects import PRESIGN_LIMIT_S

    try:
        return session.client.server_info().presign_limit_s
    except TransportError:
        return PRESIGN_LIMIT_S


def _output_of_a_job(sources: tuple[str, ...]) -> str | None:
    """What was typed for an output of a job, such as ``churn:model.pt``, where no file has that
    name.
    """
    named = (one for one in sources if re.fullmatch(r"[a-z0-9][-a-z0-9]*:.*", one))
    return next((one for one in named if not Path(one).exists()), None)


def _copy(
    session: Session,
    sources: tuple[str, ...],
    target: str,
    *,
    recursive: bool,
    dry_run: bool,
    update: bool = False,
    move: bool = False,
) -> int:
    from cloud_ml.cli.storage.checks import check_folders, check_plan
    from cloud_ml.cli.storage.copy import perform
    from cloud_ml.cli.storage.plan import check_schemes, is_remote, plan

    check_schemes((*sources, target))
    store = session.client.storage
    if not is_remote(target) and any(not is_remote(one) for one in sources):
        if (output := _output_of_a_job(sources)) is not None:
            raise click.UsageError(f"copy outputs of a job with: cloudml jobs cp {output} {target}")
        raise click.UsageError(
            "SOURCE or TARGET is a URI such as fds://bucket/path: copy local files with cp itself"
        )
    if "-" in (*sources, target):
        return _pipe(store, sources, target)
    if recursive:
        check_folders(sources, target)
    made = plan(store, sources, target, recursive=recursive)
    check_plan(made)
    return perform(store, made, update=update, dry_run=dry_run, move=move)


def _pipe(store: Storage, sources: tuple[str, ...], target: str) -> int:
    if len(sources) != 1:
        raise click.UsageError("'-' must be the only SOURCE or TARGET")
    if target == "-":
        with _open(store, sources[0]) as content:
            for chunk in content:
                sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
    else:
        from cloud_ml.cli.display.progress import bar

        with bar(f"Uploading {target}") as progress:
            stored = store.upload_stream(sys.stdin.buffer, target, progress=progress)
        note(f"- -> {stored.uri}  {readable(stored.size)}")
    return 0


def _open(store: Storage, uri: str) -> Answer:
    """The content of an object. A folder is refused with the pattern of what is below it."""
    from cloud_ml.cli.storage.plan import find_object

    try:
        return store.open(uri)
    except (InvalidRequest, NotFound):
        find_object(store, uri, f"name its objects, such as '{uri.rstrip('/')}/**'")
        raise


def _entries(store: Storage, uri: str, *, recursive: bool) -> Iterator[Any]:
    from cloud_ml.cli.storage.plan import is_pattern, matching

    if "\\" in uri:  # a name with escapes, as it is printed below
        yield from store.unnameable(uri, folders=not recursive)
        return
    if is_pattern(uri):
        yield from matching(store, uri)
        return
    bucket = uri.removeprefix(SCHEME).partition("/")[0]
    for page in store.pages(uri, folders=not recursive):
        folders = (f"{SCHEME}{bucket}/{folder}" for folder in page.folders)
        entries: list[StoredObject | str] = [*folders, *page.objects]
        yield from sorted(entries, key=_name)
    yield from _unnameable(store, uri, deep=recursive)


def _to_remove(store: Storage, uri: str, *, recursive: bool) -> Iterator[str]:
    from cloud_ml.cli.storage.plan import find_object, is_pattern, matching

    if "\\" in uri and not recursive:  # a name with escapes, as `ls` prints it
        yield uri
        return
    if is_pattern(uri):
        yield from [one.uri for one in matching(store, uri)]
        return
    if not recursive:
        bucket, _, key = uri.removeprefix(SCHEME).partition("/")
        yield find_object(store, uri, _REMOVE_FOLDER if key else _REMOVE_BUCKET.format(bucket)).uri
        return
    found = False
    root = uri if uri.endswith("/") else uri + "/"
    for one in store.list_objects(root):
        found = True
        yield one.uri
    for odd in _unnameable(store, root, deep=True):
        found = True
        yield odd.uri
    if not found and "/" in uri.removeprefix(SCHEME).rstrip("/"):
        if uri.endswith("/"):
            raise NotFound(f"there is nothing below {uri}", field="uri", value=uri)
        yield find_object(store, uri, _REMOVE_FOLDER).uri


def _unnameable(store: Storage, uri: str, *, deep: bool) -> list[UnnameableObject]:
    """Files that jobs have given names that can be no keys; a server that is older has no
    answer.
    """
    try:
        return store.unnameable(uri, folders=not deep)
    except (InvalidRequest, NotFound):
        return []


def _note_dependents(session: Session, buckets: Sequence[str]) -> None:
    """Say which model services and queued jobs need the buckets."""
    from cloud_ml.cli.storage.bucket_dependents import describe_dependents

    for sentence in describe_dependents(session.client, {_bucket(name) for name in buckets}):
        note(sentence)


def _confirm(question: str, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidRequest(
            question.replace("?", "") + " needs --yes without a terminal", field="yes"
        )
    if not click.confirm(question):
        note("Nothing is removed.")
        raise click.exceptions.Exit(1)


def _bucket(name: str) -> str:
    return name.removeprefix(SCHEME).rstrip("/")


def _name(entry: StoredObject | str) -> str:
    return entry if isinstance(entry, str) else entry.uri


def _at_least(text: str, complete: bool) -> str:
    return text if complete else f"at least {text}"
