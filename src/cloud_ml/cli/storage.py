"""``cloudml storage``: buckets, and objects such as ``fds://bucket/path``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cloud_ml.cli.lazy import LazyGroup
from cloud_ml.cli.output import echo, echo_as, echo_table, local_time, note, output_option
from cloud_ml.cli.session import Session, pass_session

if TYPE_CHECKING:
    from cloud_ml.sdk.storage import Storage

SCHEME = "fds://"


@click.group(cls=LazyGroup)
def storage() -> None:
    """Buckets, and objects such as fds://bucket/path."""


@storage.command()
@click.argument("uri", required=False)
@click.option("-r", "--recursive", is_flag=True, help="Everything below, not one level.")
@output_option()
@pass_session
def ls(session: Session, uri: str | None, recursive: bool, output: str | None) -> None:
    """List buckets, or the objects whose URI starts with URI."""
    store = session.client.storage
    if uri is None:
        _show([(bucket.name, "", local_time(bucket.created_at), bucket) for bucket in store.list_buckets()], output)
        return
    rows: list[tuple[str, str, str, Any]] = []
    for page in store.pages(uri, folders=not recursive):
        bucket = uri.removeprefix(SCHEME).partition("/")[0]
        rows += [(f"{SCHEME}{bucket}/{folder}", "", "", None) for folder in page.folders]
        rows += [(one.uri, str(one.size), local_time(one.modified), one) for one in page.objects]
    _show(sorted(rows, key=lambda row: row[0]), output)


@storage.command()
@click.argument("source")
@click.argument("target")
@click.option("-r", "--recursive", is_flag=True, help="A folder with everything below it.")
@pass_session
def cp(session: Session, source: str, target: str, recursive: bool) -> None:
    """Copy a file to an object, or an object to a file.

    A TARGET that ends in '/' (or is a folder, or a bucket) keeps the name of the SOURCE.
    """
    up, down = target.startswith(SCHEME), source.startswith(SCHEME)
    if up == down:
        raise click.UsageError(
            "one of SOURCE and TARGET is a URI such as fds://bucket/path, the other one a local path"
        )
    store = session.client.storage
    if up:
        _upload(store, Path(source).expanduser(), target, recursive=recursive)
    else:
        _download(store, source, target, recursive=recursive)


@storage.command()
@click.argument("uris", nargs=-1, required=True, metavar="URI...")
@pass_session
def cat(session: Session, uris: tuple[str, ...]) -> None:
    """Write objects to standard output."""
    for uri in uris:
        with session.client.storage.open(uri) as content:
            for chunk in content:
                sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()


@storage.command()
@click.argument("uris", nargs=-1, required=True, metavar="URI...")
@click.option("-r", "--recursive", is_flag=True, help="All objects whose URI starts with URI.")
@pass_session
def rm(session: Session, uris: tuple[str, ...], recursive: bool) -> None:
    """Remove objects. There is no way back."""
    store = session.client.storage
    for uri in uris:
        found = [one.uri for one in store.list_objects(uri)] if recursive else [uri]
        for one in found:
            store.delete(one)
            echo(f"removed {one}")


@storage.command()
@click.argument("names", nargs=-1, required=True, metavar="BUCKET...")
@pass_session
def mb(session: Session, names: tuple[str, ...]) -> None:
    """Make buckets. One that you have already stays as it is."""
    for name in names:
        session.client.storage.create_bucket(name.removeprefix(SCHEME).rstrip("/"))
        echo(f"{SCHEME}{name.removeprefix(SCHEME).rstrip('/')}")


def _show(rows: list[tuple[str, str, str, Any]], output: str | None) -> None:
    found = [{"folder": name} if one is None else one for name, _, _, one in rows]
    if not echo_as(output, found, (row[0] for row in rows)):
        echo_table(("NAME", "SIZE", "MODIFIED"), [row[:3] for row in rows])


def _upload(store: Storage, source: Path, target: str, *, recursive: bool) -> None:
    if not source.is_dir():
        uri = _named(target, source.name)
        note(f"{uri}  {store.upload(source, uri).size} bytes")
        return
    if not recursive:
        raise click.UsageError(f"{source} is a folder: copy it with -r")
    for file in sorted(path for path in source.rglob("*") if path.is_file()):
        uri = f"{target.rstrip('/')}/{file.relative_to(source).as_posix()}"
        note(f"{uri}  {store.upload(file, uri).size} bytes")


def _download(store: Storage, source: str, target: str, *, recursive: bool) -> None:
    place = Path(target).expanduser()
    if not recursive:
        if target.endswith("/") or place.is_dir():
            place /= source.rstrip("/").rpartition("/")[2]
        note(f"{place}  {store.download(source, place)} bytes")
        return
    root = source if source.endswith("/") else source + "/"
    for one in store.list_objects(root):
        file = place / one.uri.removeprefix(root)
        file.parent.mkdir(parents=True, exist_ok=True)
        note(f"{file}  {store.download(one.uri, file)} bytes")


def _named(target: str, name: str) -> str:
    is_bucket = "/" not in target.removeprefix(SCHEME)
    return f"{target.rstrip('/')}/{name}" if is_bucket or target.endswith("/") else target
