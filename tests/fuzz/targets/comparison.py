"""What is kept of jobs to compare them, and copies of jobs."""

from __future__ import annotations

import contextlib
import io
import json
import tarfile
import zipfile

from cloud_ml.collector.archive_files import MOST_BYTES, MOST_FILES, differences, files_of
from cloud_ml.domain.comparison.inputs import (
    InputObject,
    ManifestBuilder,
    changed_objects,
    entries_of,
    manifests_of,
)
from cloud_ml.domain.jobs.clones import with_arguments
from cloud_ml.domain.tracking.arguments import parameters_of
from cloud_ml.errors import InvalidRequest
from cloud_ml.models.jobs.git import check_git, without_credentials
from cloud_ml.models.secrets.diffs import without_secrets
from fuzz.harness import target

_COMMIT = "a" * 40


def _archive(kind: str, files: dict[str, bytes]) -> bytes:
    whole = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as packed:
            for name, content in files.items():
                packed.writestr(zipfile.ZipInfo(name), content)
        return whole.getvalue()
    with tarfile.open(fileobj=whole, mode=f"w:{kind}") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return whole.getvalue()


@target(
    "collector.archive_files",
    seeds=[_archive(kind, {"a.py": b"x = 1\n", "b/c.bin": b"\0"}) for kind in ("", "gz", "bz2", "xz", "zip")],
    words=[b"PK\x03\x04", b"\x1f\x8b", b"BZh", b"ustar", b"path=", b"GNU.sparse.map=0,1", b"size=99999999999"],
)  # fmt: skip
def archive_of_code(data: bytes) -> None:
    """Bytes as an archive: its files within bounds, or ``ValueError``."""
    known = {"a.py": b"x = 1\n"}
    try:
        files = files_of(data)
    except ValueError:
        return
    assert len(files) <= MOST_FILES
    assert sum(map(len, files.values())) <= MOST_BYTES
    assert differences(files, files) == []
    json.dumps(differences(known, files))
    json.dumps(differences(files, known, texts=False))


@target(
    "domain.comparison.inputs",
    seeds=[b"a\x00b", b'[["a", 1, "d"]]', b'{"uri": 1}', b"VPa!sE_qk"],
    words=[b'{"uri": "fds://b/a"}', b'"objects"', b"[[[", b"\x00"],
)
def inputs_of_a_run(data: bytes) -> None:
    """A manifest is read back whatever its keys are; what users add never ends the reading."""
    text = data.decode("utf-8", "replace")
    builder = ManifestBuilder(f"fds://b/{text}"[:300])
    for key in text.split("\0"):
        builder.add(InputObject(key, len(key), "d"))
    made = builder.built()
    entries = list(entries_of(made))
    foreign = [
        {"dataset": {"source_type": "cloudml", "source": text, "profile": text}},
        {"dataset": {"source_type": "cloudml", "source": '{"uri": "x"}', "profile": text}},
        {"cloudml_objects": {"uri": "x", "objects": text}},
    ]
    inputs = json.dumps([*entries, *foreign])
    found = manifests_of(inputs, listed=True)
    assert found[made.uri] == made
    assert manifests_of(inputs).keys() == found.keys()
    assert changed_objects(made, made) == []
    for one in found.values():
        changed_objects(made, one)


@target(
    "domain.jobs.clones",
    seeds=[b"--lr=1\x00x", b"--lr\x001", b"--fast\x00--\x00--lr=2", b"-lr\x00-1"],
    words=[b"--lr", b"--lr=", b"--", b"\x00", b"-1", b"=", b"true"],
)
def arguments_of_a_copy(data: bytes) -> None:
    """A flag has the value that was asked for; the second time, nothing changes."""
    words = data.decode("utf-8", "replace").split("\0")
    changed = with_arguments(words, {"lr": "new"})
    assert with_arguments(changed, {"lr": "new"}) == changed
    assert (
        parameters_of(changed[: changed.index("--")] if "--" in changed else changed).get("lr")
        == "new"
        or len(words) > 100
    )
    gone = with_arguments(changed, {"lr": None})
    assert with_arguments(gone, {"lr": None}) == gone


@target(
    "models.jobs.git",
    "models.secrets.diffs",
    seeds=[b"https://mei:hunter2@h/a.git", b"git@h:a/b", b"https://[", b"a:b@c", b"+token = 'x'"],
    words=[b"://", b"@", b":", b"?", b"#", b"[", b"]", b"token=", b"\n+"],
)
def remote_of_a_repository(data: bytes) -> None:
    """No password is left of a remote, and no user in a URL of a diff."""
    text = data.decode("utf-8", "replace")
    kept = without_credentials(text)
    assert without_credentials(kept) == kept or "://" in kept
    if "://" in kept:
        assert "@" not in kept.partition("://")[2].partition("/")[0]
    hidden = without_credentials(f"https://mei:hunter2xyz@{text}")
    assert "hunter2xyz" not in hidden or "hunter2xyz" in text
    shown = without_secrets(f"+API_TOKEN = 'hunter2xyz'\n{text}".encode())
    assert b"hunter2xyz" not in shown or "hunter2xyz" in text
    with contextlib.suppress(InvalidRequest):
        facts = check_git("git", {"commit": _COMMIT, "remote": text, "branch": text})
        assert facts is not None
