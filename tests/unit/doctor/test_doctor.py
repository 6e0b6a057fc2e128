"""Each examination, on a machine that lacks something."""

from __future__ import annotations

import contextlib
import errno
import http.server
import os
import socket
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from cloud_ml import data_folder
from cloud_ml.doctor import (
    areas,
    client,
    database,
    machine,
    network,
    reach,
    runtimes,
    secrets,
    storage,
)
from cloud_ml.doctor.findings import Finding, Verdict
from cloud_ml.domain.secrets import SECRET, SecretSpec
from cloud_ml.domain.tenancy import StandingStatus
from cloud_ml.environments.packages.pipconfig import PipConfig
from cloud_ml.errors import InvalidRequest, Unauthenticated
from cloud_ml.objects.memory import MemoryObjectStore
from cloud_ml.sealing import KeyFile
from cloud_ml.settings import Settings, load
from cloud_ml.state.sql.store import SqlStateStore
from cloud_ml.usecases.access.identities import Identities
from cloud_ml.usecases.clock import system_clock
from cloud_ml.usecases.sealing_key import ensure_sealing_key
from cloud_ml.usecases.storage.objects import Storage


@pytest.fixture
def settings(tmp_path: Path) -> Callable[..., Settings]:
    """Settings of a server whose data is below ``tmp_path``."""
    return lambda **server: load(
        None, {}, {"server": {"data_dir": str(tmp_path / "data"), "port": 0, **server}}
    )


def named(findings: Iterator[Finding], name: str) -> Finding:
    return next(one for one in findings if one.name == name)


def test_the_machine_is_told() -> None:
    found = {one.name: one for one in machine.examine()}
    assert f"{len(os.sched_getaffinity(0))} cores" in found["size"].says
    assert "Linux" in found["system"].says


def test_few_open_files_are_a_warning_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (256, 1024))
    found = named(machine.examine(), "open files")
    assert (found.verdict, found.says) == (
        Verdict.WARNING,
        "at most 1024, which is enough for 384 connections",
    )
    assert "ulimit -Hn 4096" in found.remedy


def test_an_accelerator_is_named_and_a_broken_driver_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA T4, 15360 MiB'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    assert named(machine.examine(), "gpus").says == "NVIDIA T4, 15360 MiB"
    program.write_text("#!/bin/sh\nexit 9\n")
    assert named(machine.examine(), "gpus").verdict is Verdict.WARNING


@pytest.mark.parametrize(
    ("most", "verdict"), [("2465620\n", Verdict.WARNING), (f"{2**63 - 1}\n", Verdict.OK)]
)
def test_open_files_that_one_organisation_could_take_are_a_warning(
    monkeypatch: pytest.MonkeyPatch, most: str, verdict: Verdict
) -> None:
    read = Path.read_text

    def read_text(path: Path, *rest: Any) -> str:
        return most if path == Path("/proc/sys/fs/file-max") else read(path, *rest)

    monkeypatch.setattr(Path, "read_text", read_text)
    found = named(machine.examine(), "open files of all")
    assert found.verdict is verdict
    assert verdict is Verdict.OK or "sysctl fs.file-max" in (found.remedy or "")


def test_a_data_folder_that_others_write_is_a_problem(
    settings: Callable[..., Settings], tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o777)
    found = named(storage.examine(settings()), "data")
    assert found.verdict is Verdict.PROBLEM
    assert found.remedy == f"chmod go-w {tmp_path / 'data'}"


def test_a_folder_that_takes_no_files_is_a_problem(
    settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_more: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", refuse)
    found = named(storage.examine(settings()), "writing")
    assert found.verdict is Verdict.PROBLEM
    assert "(Read-only file system)" in found.says


def test_storage_is_measured_and_nothing_is_left(
    settings: Callable[..., Settings], tmp_path: Path
) -> None:
    found = {one.name: one for one in storage.examine(settings())}
    assert "may keep" in found["limit"].says
    assert "a quarter of what is free" in found["limit"].says
    assert found["ended jobs"].says == "those of one organisation may keep as much as is free"
    assert (
        "1000000 objects and folders, 1000 buckets; uploads leave 1G free" in found["objects"].says
    )
    assert {"data", "room", "file system", "speed"} <= set(found)
    assert "a flush takes" in found["speed"].says
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("mount", "says"),
    [
        (
            "xfs rw,prjquota",
            "on at /, and not used without engine.project_id_base: disk limits of jobs are "
            "measured, and may be passed by 128 MiB",
        ),
        (
            "ext4 rw,relatime",
            "off at /: disk limits of jobs are measured, and may be passed by 128 MiB",
        ),
        (
            "btrfs rw",
            "btrfs has none: disk limits of jobs are measured, and may be passed by 128 MiB",
        ),
    ],
)
def test_project_quotas_are_reported(
    settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch, mount: str, says: str
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_: f"none / {mount} 0 0\n")
    assert named(storage.examine(settings()), "project quotas").says == says


@pytest.mark.parametrize("why", ["", "the file system is not mounted with prjquota"])
def test_whether_project_quotas_are_used_and_why_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, why: str
) -> None:
    monkeypatch.setattr(storage, "unusable", lambda *_, **__: why)
    options = {
        "server": {"data_dir": str(tmp_path / "data")},
        "engine": {"project_id_base": 1_600_000_000},
    }
    found = named(storage.examine(load(None, {}, options)), "project quotas")
    assert found.verdict is (Verdict.WARNING if why else Verdict.OK)
    assert found.says.startswith(f"not used, because {why}: " if why else "used at /")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders to users of organisations")
def test_buckets_that_jobs_cannot_use_are_named(
    settings: Callable[..., Settings], tmp_path: Path
) -> None:
    (tmp_path / "data" / "objects" / "theirs").mkdir(parents=True)
    with contextlib.closing(
        SqlStateStore.open(f"sqlite:///{tmp_path / 'data' / 'state.db'}")
    ) as store:
        org = Identities(store, system_clock).create_organisation("mine")
        Storage(store, MemoryObjectStore(), system_clock).create_bucket(org, "theirs")
    owner, other, folder = (
        1_600_000 + org.number,
        1_600_099,
        tmp_path / "data" / "objects" / "theirs",
    )
    os.chown(folder, other, other)
    found = named(storage.examine(settings()), "bucket theirs")
    assert found.verdict is Verdict.PROBLEM
    assert (
        found.says
        == f"user {other} owns its folder, and jobs of mine run as {owner}: they cannot use it"
    )
    assert f"chown -hR --from={other} {owner}:{owner} {folder}" in (found.remedy or "")
    for right in (owner, 0):
        os.chown(folder, right, right)
        assert not [each for each in storage.examine(settings()) if each.name.startswith("bucket")]


@pytest.mark.parametrize(
    "setting", [{"objects_per_org": 0}, {"buckets_per_org": 0}, {"disk_reserve": ""}]
)
def test_objects_that_may_fill_the_disk_are_a_warning(
    tmp_path: Path, setting: dict[str, object]
) -> None:
    options = {"server": {"data_dir": str(tmp_path / "data")}, "storage": setting}
    found = named(storage.examine(load(None, {}, options)), "objects")
    assert found.verdict is Verdict.WARNING
    assert f"storage.{next(iter(setting))}" in found.says


def test_jobs_that_may_fill_the_disk_together_are_a_warning(tmp_path: Path) -> None:
    options = {"server": {"data_dir": str(tmp_path / "data")}, "engine": {"kept_disk": "none"}}
    found = named(storage.examine(load(None, {}, options)), "ended jobs")
    assert found.verdict is Verdict.WARNING
    assert "engine.kept_disk" in (found.remedy or "")


def test_memory_as_a_disk_is_a_warning(
    settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines = f"none / ext4 rw 0 0\nnone {tmp_path} tmpfs rw 0 0\n"
    monkeypatch.setattr(Path, "read_text", lambda *_: lines)
    found = named(storage.examine(settings()), "file system")
    assert (found.verdict, found.says.split(":")[0]) == (Verdict.WARNING, "tmpfs")


def test_a_database_is_new_current_older_newer_missing_or_broken(
    settings: Callable[..., Settings], tmp_path: Path
) -> None:
    mine = settings()
    assert "made at the first start" in named(database.examine(mine), "kind").says
    mine.data_dir.mkdir()
    SqlStateStore.open(mine.database_url, create=True).close()
    assert named(database.examine(mine), "schema").verdict is Verdict.OK
    file = mine.data_dir / "state.db"
    for version, verdict in (("0000", Verdict.WARNING), ("9999", Verdict.PROBLEM)):
        with sqlite3.connect(file) as connection:
            connection.execute("UPDATE schema_version SET version_num = ?", [version])
        connection.close()
        assert named(database.examine(mine), "schema").verdict is verdict
    data_folder.credentials(mine.data_dir).touch()
    for leftover in mine.data_dir.glob("state.db*"):
        leftover.unlink()
    missing = named(database.examine(mine), "kind")
    assert missing.verdict is Verdict.PROBLEM
    assert "restore" in missing.remedy
    file.write_bytes(b"no database" * 1000)
    assert named(database.examine(mine), "kind").verdict is Verdict.PROBLEM


def test_a_database_server_that_does_not_answer_is_told_without_its_password(
    settings: Callable[..., Settings],
) -> None:
    url = "postgresql://me:secret-word@127.0.0.1:1/cloudml"
    (found,) = database.examine(settings(database_url=url))
    assert found.verdict is Verdict.PROBLEM
    assert "secret-word" not in found.says


def test_git_is_asked_for_where_trainers_may_come_from_the_web(
    settings: Callable[..., Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtimes, "_indexes", lambda _: iter(()))
    monkeypatch.setattr("cloud_ml.fetching.git._PROGRAMS", str(tmp_path))
    for version in ("", "2.25.1", "2.37.0"):
        if version:
            (tmp_path / "git").write_text(f"#!/bin/sh\necho git version {version}\n")
            (tmp_path / "git").chmod(0o755)
        found = named(runtimes.examine(settings()), "git")
        if version == "2.37.0":
            assert (found.verdict, found.says) == (Verdict.OK, f"2.37.0, {tmp_path / 'git'}")
        else:
            assert found.verdict is Verdict.WARNING
            assert "git+https://" in found.says
            assert "2.37" in found.remedy
    closed = load(
        environment={"CLOUDML_SERVER_DATA_DIR": str(tmp_path), "CLOUDML_TRAINERS_URLS": "none"}
    )
    assert all(one.name != "git" for one in runtimes.examine(closed))


def test_a_bad_runtime_file_is_named(
    settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "cloud_ml.environments.packages.pipconfig.read", lambda: PipConfig(no_index=True)
    )
    mine = settings()
    mine.runtimes_dir.mkdir(parents=True)
    (mine.runtimes_dir / "odd.toml").write_text("name = 3\n")
    found = named(runtimes.examine(mine), "frameworks")
    assert found.verdict is Verdict.PROBLEM
    assert "odd.toml" in found.says


def test_an_index_that_nobody_serves_is_a_warning_without_its_password(
    settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    index = PipConfig(index="http://me:secret-word@127.0.0.1:1/simple")
    monkeypatch.setattr("cloud_ml.environments.packages.pipconfig.read", lambda: index)
    found = named(runtimes.examine(settings()), "index")
    assert found.verdict is Verdict.WARNING
    assert "secret-word" not in found.says + found.remedy


class _Other(http.server.BaseHTTPRequestHandler):
    """Somebody else's server; it keeps what it was sent."""

    seen: ClassVar[list[Any]] = []

    def do_HEAD(self) -> None:
        self.seen.append((self.path, self.headers.get("Authorization")))
        self.send_response(404)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def other() -> Iterator[int]:
    """The port of a server that is not ours."""
    with http.server.HTTPServer(("127.0.0.1", 0), _Other) as served:
        thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield served.server_port
        served.shutdown()
        thread.join()


def test_asking_an_address_sends_no_credentials(other: int) -> None:
    _Other.seen.clear()
    reach.reach(f"http://me:secret-word@127.0.0.1:{other}/simple/")
    assert _Other.seen == [("/simple/", None)]
    with pytest.raises(reach.Unreachable, match="ftp is no scheme"):
        reach.reach("ftp://example.org")
    with pytest.raises(reach.Unreachable, match="no such folder"):
        reach.reach("file:///no/such/folder")


def test_who_has_the_port_is_told(settings: Callable[..., Settings], other: int) -> None:
    found = named(network.examine(settings(port=other)), "address")
    assert (found.verdict, "another HTTP server" in found.says) == (Verdict.WARNING, True)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        silent.close()
        assert (
            named(network.examine(settings(port=port)), "address").says
            == f"127.0.0.1:{port} is free"
        )


@pytest.mark.parametrize(
    ("server", "verdict"),
    [
        ({"host": "127.0.0.1"}, Verdict.OK),
        ({"host": "::1"}, Verdict.OK),
        ({"host": "0.0.0.0"}, Verdict.PROBLEM),
        ({"host": "0.0.0.0", "behind_proxy": True}, Verdict.OK),
        ({"host": "0.0.0.0", "tls_cert": __file__, "tls_key": __file__}, Verdict.OK),
        ({"host": "0.0.0.0", "tls_cert": "/no/cert", "tls_key": "/no/key"}, Verdict.PROBLEM),
    ],
)
def test_what_others_can_reach(
    settings: Callable[..., Settings], server: dict[str, Any], verdict: Verdict
) -> None:
    assert named(network.examine(settings(**server)), "exposure").verdict is verdict


def test_a_users_key_that_is_missing_or_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config.json"
    file.write_text("{}")
    file.chmod(0o644)
    monkeypatch.setenv("CLOUDML_CONFIG", str(file))

    def refuse() -> Any:
        raise InvalidRequest("there is no access key", hint="make one")

    found = {one.name: one for one in client.examine(refuse)}
    assert found["settings"].remedy == f"chmod 600 {file}"
    assert (found["key"].says, found["key"].remedy) == ("there is no access key", "make one")


def test_a_key_that_the_server_refuses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CLOUDML_CONFIG", str(tmp_path / "none.json"))

    class Refused:
        def whoami(self) -> None:
            raise Unauthenticated("the signature is wrong")

        def close(self) -> None: ...

    (found,) = client.examine(Refused)  # type: ignore[arg-type]
    assert (found.verdict, found.says) == (Verdict.WARNING, "the signature is wrong")


def test_the_sealing_key_is_there_and_opens_what_is_stored(
    settings: Callable[..., Settings],
) -> None:
    mine = settings()
    mine.data_dir.mkdir()
    assert "made at the first start" in named(secrets.examine(mine), "sealing key").says
    file = KeyFile(mine.sealing_key_file)
    with contextlib.closing(SqlStateStore.open(mine.database_url, create=True)) as store:
        ensure_sealing_key(file, store, system_clock)
        assert [one.verdict for one in secrets.examine(mine)] == [Verdict.OK]
        for org in ("default", "other"):
            spec = SecretSpec(file.seal(b"value", f"{org}/db"), 5, text=True)
            store.create(
                SECRET,
                org=org,
                name="db",
                owner="mei",
                spec=spec,
                status=StandingStatus(),
                now=system_clock(),
            )
    assert named(secrets.examine(mine), "values").says == "2, each of which can be read"
    file.path.chmod(0o644)
    assert "chmod 600" in named(secrets.examine(mine), "sealing key").remedy
    file.path.rename(mine.data_dir / "elsewhere")
    assert [one.verdict for one in secrets.examine(mine)] == [Verdict.PROBLEM, Verdict.PROBLEM]
    assert named(secrets.examine(mine), "values").says == "2 of 2 secrets cannot be read"
    file.make()
    assert "not the key that the first server" in named(secrets.examine(mine), "sealing key").says
    file.path.write_text("nonsense")
    assert "malformed" in named(secrets.examine(mine), "sealing key").says


def test_every_area_is_examined(settings: Callable[..., Settings]) -> None:
    names = list(areas(settings(), lambda: None))  # type: ignore[arg-type, return-value]
    assert names == [
        "machine",
        "isolation",
        "storage",
        "database",
        "secrets",
        "runtimes",
        "network",
        "client",
    ]
