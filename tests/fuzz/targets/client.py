"""What a client reads: answers of a server that may be anybody's, and files of its user."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cloud_ml.cli.display import yamls
from cloud_ml.cli.display.installing import Installing
from cloud_ml.cli.jobs import env_files, jobfile
from cloud_ml.errors import CloudMlError, InvalidRequest, TransportError
from cloud_ml.models.paths.ignoring import IgnoreRules
from cloud_ml.sdk import config, failures, pieces, watching
from cloud_ml.sdk.endpoint import parse_endpoint
from cloud_ml.sdk.jobs import output_paths
from fuzz.harness import cuts, scratch, target, text
from fuzz.harness import pieces as parts_of

ENDPOINT = parse_endpoint("http://h")


@target(
    "sdk.pieces",
    "sdk.watching",
    seeds=[b'id: 5\nevent: job\ndata: {"x": 1}\n\n: beat\n\n', b"data: a\r\ndata: b\r\nid: \xc2\xb2\n\n", b"id: " + b"9" * 5000 + b"\ndata: x\n\n",
           b"event: job\ndata: [\n\n", b"event: gone\ndata: " + b"[" * 3000 + b"\n\n"],
    words=["id: ", "event: job", "data: ", "\n\n", "\r", ": ", '{"revision": 1}'],
)  # fmt: skip
def events(data: bytes) -> None:
    """Events are the same however they arrive; a stream that is not ours is an error of ours."""
    whole = list(pieces.EventReader().feed(data))
    tail = pieces.LastLines(3)
    tail.feed(data)
    for cut in cuts(data[:2000]):
        reader, other = pieces.EventReader(), pieces.LastLines(3)
        found = []
        for chunk in cut:
            found += reader.feed(chunk)
            other.feed(chunk)
        if len(data) <= 2000:
            assert found == whole
            assert (other.size, other.text()) == (tail.size, tail.text())
    assert data.endswith(tail.text())

    left = [data]

    @contextlib.contextmanager
    def stream(_after: int | None) -> Iterator[Iterator[bytes]]:
        if not left:
            raise TransportError("gone")
        yield iter([left.pop()])

    watched = watching.follow_changes(
        stream, after=None, patience=watching.PATIENCE, sleep=lambda _seconds: None
    )
    with contextlib.suppress(CloudMlError):
        for _ in zip(range(20), watched, strict=False):
            pass


@target(
    "cli.display.installing",
    seeds=[b"Installing 3 packages that no job has needed here before\nDownloading numpy (1.5MiB)\nDownloaded numpy\nInstalled 3 packages in 1s\n"
           b"Bytecode compiled 12 files in 1s\n", b"Installing 1 package that no job has needed here before\nDownloading \xff (9.9GiB)\n"],
    words=["Installing ", " packages that no job has needed here "
                          "before", "Downloading ", " (1MiB)", "Downloaded ", "Installed ", "\n"],
)  # fmt: skip
def installation(data: bytes) -> None:
    """How far it is does not hang on how the log arrives, and is never more than all."""
    whole = Installing()
    whole.feed(data)
    for cut in cuts(data[:2000]):
        one = Installing()
        for chunk in cut:
            one.feed(chunk)
            assert one.now is None or 0 <= one.now.done <= one.now.total
        assert len(data) > 2000 or one.now == whole.now


@target(
    "sdk.failures",
    seeds=[b'400 {"error": true, "code": "invalid", "message": "x", "field": "y"}', b"503 ", b"302 x", b"412 " + b"[" * 3000,
           b'412 {"error": true, "code": "already_exists", "message": 5, "same_spec": "x"}', b'500 {"error": true, "message": null, "code": []}'],
    words=['"error": true', '"code"', '"message"', '"hint"', "already_exists", "quota_exceeded", "null", "[]"],
)  # fmt: skip
def refusals(data: bytes) -> None:
    """Whatever stands in an answer that is no success, it becomes one of our errors, with a
    sentence.
    """
    status = 300 + int.from_bytes(data[:3], "big") % 300
    for headers in (
        {},
        {"content-type": text(data[:20]), "location": text(data), "x-request-id": "x"},
    ):
        error = failures.error_of_answer(ENDPOINT, status, headers, data[4:])
        assert isinstance(error, CloudMlError)
        assert isinstance(error.message, str)
        assert str(error)
        json.dumps(error.document())


@target(
    "cli.jobs.jobfile",
    "cli.options.json_documents",
    "cli.display.yamls",
    seeds=['j{"job_name": "x"}', 'tjob_name = "x"', "yjob_name: x\nlabels: {a: "
                                                    "2026-01-31}\n", "y&a [*a]", "y!!python/object:x {}", "j" + "[" * 3000,
           "ta=" + "[" * 3000, "y" + "[" * 3000, "y{a: [1, 2.5, yes, 012, 1:30, "
                                                 "~]}", "y? [a]\n: b", "y<<: {a: b}", "j" + "9" * 5000, "y" + "9" * 5000,
           "ya: &x [1,1]\nb: &y [*x,*x]\nc: [*y,*y]", "y- &a {b: *a}", "j[1]", "j\ufeff{}"],
    words=["job_name", "trainer_uri", ": ", "- ", "&a ", "*a", "!!", "<<", "---", "{", "[", "|", ">", "'", '"""', "[[x]]", "\t"],
)  # fmt: skip
def job_file(data: bytes) -> None:
    """Refused with the name of the file; or fields that are known, and that come back when they
    are written.
    """
    ending = {b"j": ".json", b"t": ".toml", b"y": ".yaml"}.get(data[:1], ".json")
    with scratch() as folder:
        file = folder / f"job{ending}"
        file.write_bytes(data[1:])
        try:
            fields = jobfile.read_job_file(file)
        except InvalidRequest as error:
            assert str(file) in str(error)  # noqa: PT017
            return
    with contextlib.suppress(
        TypeError, ValueError, RecursionError
    ):  # TOML has times, YAML may hold itself
        plain = json.loads(json.dumps(fields, allow_nan=False))
        if plain == fields:
            assert yamls.load(yamls.dump(plain)) == plain


@target(
    "models.paths.ignoring",
    "models.paths.wildcards",
    seeds=["/build/\n*.py[co]\n**/x\na/**/b\0a/b", "[z-a]\0z", "[!]\0!", "!x\0x", "**/" * 20 + "y\0" + "x/" * 40, "*a" * 15 + "\0" + "a" * 60, "[\\]\0\\",
           "[[:alpha:]]\0a", "#x\0#x", "[a-\\d]\0b"],
    words=["**/", "**", "*", "?", "[", "]", "!", "^", "/", "-", "\\", "\n", "#", "&&", "||", "~~", "--"],
)  # fmt: skip
def ignore_file(data: bytes) -> None:
    """Refused by the file's name, or patterns that answer for any path in bounded time."""
    lines, path = map(text, parts_of(data, 2))
    try:
        rules = IgnoreRules(lines[:400].split("\n"))
    except InvalidRequest as error:
        assert error.field == ".cloudmlignore"  # noqa: PT017
        return
    as_file = rules.ignores(path[:200], folder=False)
    assert rules.ignores(path[:200], folder=True) or not as_file


@target(
    "sdk.config",
    seeds=['{"current": "a", "contexts": {"a": {"endpoint": "http://h", "access_key": "k", '
           '"secret_key": "s"}}}', "[]", '{"contexts": []}',
           '{"contexts": {"a": '
           '5}}', "[" * 3000, '{"current": [], "contexts": {"\\ud800": {"endpoint": {}}}}'],
    words=['"contexts"', '"current"', '"endpoint"', '"secret_key"', "null", "[]", "{}"],
)  # fmt: skip
def user_settings(data: bytes) -> None:
    """Refused with the file's name and no secret; or contexts that come back when they are
    written.
    """
    with scratch() as folder:
        file = folder / "config.json"
        file.write_bytes(data)
        try:
            found = config.read_configuration(file)
        except InvalidRequest as error:
            assert str(file) in str(error)  # noqa: PT017
            return
        with contextlib.suppress(UnicodeEncodeError):
            config.write_configuration(found, file)
            again: Any = config.read_configuration(file)
            assert dict(again.contexts) == dict(found.contexts)


@target(
    "cli.jobs.env_files",
    seeds=[b'A=1\nexport B="x\\ny" # c\n#\nC=\'#\'\nHOME\n', b"\xef\xbb\xbfA=1\r\nA=2", b"1A=2", b"A", b'A="' + b"\\" * 3001, b"\xff"],
    words=["export ", "=", " #", '"', "'", "\\n", "\n", "\r\n", "A"],
)  # fmt: skip
def variables_file(data: bytes) -> None:
    """Refused with the name of the file; or variables, of which plain ones come back when they
    are written.
    """
    path = Path("vars.env")
    try:
        found = env_files.parse_env_file(path, data, {"A": "mine"})
    except InvalidRequest as error:
        assert str(path) in str(error)  # noqa: PT017
        return
    written = "".join(
        f"{name}='{value}'\n" for name, value in found.items() if not set(value) & set("'\r\n")
    )
    plain = {name: value for name, value in found.items() if not set(value) & set("'\r\n")}
    assert env_files.parse_env_file(path, written.encode(), {}) == plain


@target(
    "sdk.jobs.output_paths",
    seeds=["job:model.pt", "job:", "a:../../etc/passwd", "job:/etc/passwd", "job:1/a\n1/b\n2/../../c", "fds://b/k", "job:./x\nx/model.onnx"],
    words=["job:", "../", "./", "/", "1/", "model.onnx", "\0", "\\", "~", "C:"],
)  # fmt: skip
def output_names(data: bytes) -> None:
    """What a server says that a job has left is written below the folder that the user named,
    and nowhere else.
    """
    first, *others = text(data).split("\n")
    with contextlib.suppress(ValueError, OSError):  # a zero byte, a name that is too long
        source = output_paths.output_source(first)
        if source is None:
            return
        assert output_paths.output_source(str(source)) == source or source.path.startswith(
            ("./", "/")
        )
        with contextlib.suppress(InvalidRequest):
            for key in output_paths.version_keys(
                source, [other for other in others if source.holds(other)]
            ):
                assert key
        with scratch() as folder:
            for other in (source.path, *others):
                with contextlib.suppress(InvalidRequest):
                    place = output_paths.local_place(folder, other)
                    assert place.resolve().is_relative_to(folder.resolve())
