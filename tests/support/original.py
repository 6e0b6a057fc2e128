"""The original client, as it is published, beside a real server: its own interpreter, the names it
insists on.

Nothing of it is in this project: it is installed from the package index for the tests that use it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import select
import shutil
import socket
import socketserver
import subprocess
import tarfile
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.environments import environment_home
from support.server import Ran, RealServer

INTERPRETERS = ("3.8", "3.7")
"""The last ones that run it as it is: newer ones lack a function that its signer calls."""
FDS_HOST = "test-fds.api.xiaomi.net"
"""The storage client takes host names of this form only, and speaks TLS on port 443 to them."""
BUCKET = "cloudml"

_CLIENT = ("cloud-ml-sdk==0.3.71", "galaxy-fds-sdk==1.4.44")
_OTHERS = (
    "requests<3",
    "urllib3<3",
    "argcomplete<2",
    "click<8",
    "crcmod<2",
    "pyyaml<7",
    "netaddr",
    "pyOpenSSL<27",
    "grpcio",
)
_COMMON = "cloud_ml_common-0.0.2"
_OLDER = ("requests==2.27.1", "urllib3<1.27")


def install(versions: Sequence[str] = INTERPRETERS, more: Sequence[str] = ()) -> Path:
    """A virtual environment with the original client and ``more``; returns its folder of programs.

    It stays for the next run.
    """
    python = find_interpreter(versions)
    if python is None:
        pytest.skip(
            f"the original client needs Python {' or '.join(versions)}; none is on PATH or in "
            "PYENV_ROOT"
        )
    known = hashlib.sha256(
        repr((python, _CLIENT, _OTHERS, _COMMON, _OLDER, more)).encode()
    ).hexdigest()[:16]
    folder = environment_home().with_name("original-client") / known
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            _install(python, folder, more)
            (folder / "ready").touch()
    return folder / "venv" / "bin"


def _install(python: str, folder: Path, more: Sequence[str]) -> None:
    """Its dependency ``cloud-ml-common>=0.2.2`` was never published: the one version there is
    serves as well, once it says that it is the one that is asked for.
    """
    programs = folder / "venv" / "bin"
    _do([python, "-m", "venv", "--clear", str(folder / "venv")])
    pip = [str(programs / "python"), "-m", "pip", "--disable-pip-version-check", "--no-cache-dir"]
    _do([*pip, "install", "-q", *_OTHERS])
    _do([*pip, "install", "-q", "--no-deps", *_CLIENT])
    _do(
        [
            *pip,
            "download",
            "-q",
            "--no-deps",
            "--no-binary",
            ":all:",
            "-d",
            str(folder),
            "cloud-ml-common==0.0.2",
        ]
    )
    with tarfile.open(folder / f"{_COMMON}.tar.gz") as archive:
        archive.extractall(
            folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {})
        )
    setup = folder / _COMMON / "setup.py"
    setup.write_text(setup.read_text().replace("0.0.2", "0.2.2"))
    _do([*pip, "install", "-q", "--no-deps", str(folder / _COMMON)])
    _do([*pip, "install", "-q", "--target", str(older_requests(programs)), *_OLDER])
    if more:
        _do([*pip, "install", "-q", *more])


def older_requests(programs: Path) -> Path:
    """A folder with the HTTP library of the client's time, for ``PYTHONPATH``."""
    return programs.parents[1] / "older-requests"


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate and its key for every name that the original client uses."""
    if (openssl := shutil.which("openssl")) is None:
        pytest.skip(
            "the storage client insists on TLS, and there is no openssl to make a certificate with"
        )
    cert, key = folder / "cert.pem", folder / "key.pem"
    names = f"subjectAltName=IP:127.0.0.1,DNS:{FDS_HOST},DNS:cdn.cnbj0.fds.api.mi-img.com"
    _do(
        [
            openssl,
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=cloud-ml-test",
            "-addext",
            names,
            "-keyout",
            str(key),
            "-out",
            str(cert),
        ]
    )
    return cert, key


class OriginalClient:
    """Runs its programs as a user who has a key of the administrator's in the environment: one made
    with `--legacy`.

    Args:
        programs: The folder that ``install`` returned.
        server: A server with ``cert`` as its certificate.
        home: An empty folder.
        tunnel: Where the names of the storage service lead.
    """

    def __init__(
        self, programs: Path, server: RealServer, home: Path, cert: Path, tunnel: Tunnel
    ) -> None:
        self.home = home
        self.server = server
        self._programs = programs
        trusted = {"SSL_CERT_FILE": str(cert)} if cert.exists() else {}
        made = (
            server.cli("admin", "keys", "create", "--legacy", "-o", "json", **trusted).good().json()
        )
        self.connection = {
            "REQUESTS_CA_BUNDLE": str(cert),
            "HTTPS_PROXY": tunnel.address,
            "NO_PROXY": "127.0.0.1",
        }
        self.settings = {
            "XIAOMI_CLOUDML_ENDPOINT": server.endpoint,
            "XIAOMI_ACCESS_KEY_ID": made["key"]["access_key"],
            "XIAOMI_SECRET_ACCESS_KEY": made["secret_key"],
            "XIAOMI_ORG_MAIL": "team@example.com",
            "XIAOMI_FDS_ENDPOINT": FDS_HOST,
            "CLOUDML_DEFAULT_FDS_BUCKET": BUCKET,
            # It fails on attributes that are only set when these are.
            "XIAOMI_HDFS_KRB_ACCOUNT": "",
            "XIAOMI_HDFS_KRB_PASSWORD": "",
            "XIAOMI_HDFS_ENDPOINT": "",
        }

    def __call__(self, *arguments: str) -> Ran:
        """Run ``cloudml`` to its end."""
        return self.run("cloudml", *arguments)

    def run(
        self, program: str, *arguments: str, typed: str = "", settings: dict[str, str] | None = None
    ) -> Ran:
        """Run a program of the client's environment; ``settings`` in place of all that is known
        of the server.
        """
        ended = subprocess.run(
            [str(self._programs / program), *arguments],
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.home),
                **self.connection,
                **(self.settings if settings is None else settings),
            },
            cwd=self.home, input=typed, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        return Ran(ended.returncode, ended.stdout, ended.stderr)


class Tunnel(socketserver.ThreadingTCPServer):
    """A proxy that leads every name to one port of this machine, so that nobody has to change
    its name service.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Connect)
        self.target = ("127.0.0.1", port)
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def address(self) -> str:
        """What ``HTTPS_PROXY`` is to be."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def close(self) -> None:
        """End it, with the connections that are left."""
        self.shutdown()
        self.server_close()


class _Connect(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        while self.rfile.readline(4096).strip():
            pass
        assert isinstance(self.server, Tunnel)
        with socket.create_connection(self.server.target) as there:
            self.connection.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
            other = {self.connection: there, there: self.connection}
            while True:
                for ready in select.select(list(other), [], [])[0]:
                    if not (chunk := ready.recv(65536)):
                        return
                    other[ready].sendall(chunk)


def find_interpreter(versions: Sequence[str]) -> str | None:
    for version in versions:
        installed = Path(os.environ.get("PYENV_ROOT", "/nonexistent")) / "versions"
        for candidate in sorted(installed.glob(f"{version}.*/bin/python")):
            return str(candidate)
        if found := shutil.which(f"python{version}"):
            return found
    return None


def _do(command: list[str]) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if ended.returncode:
        lines = (ended.stderr or ended.stdout).strip().splitlines() or ["nothing was said"]
        pytest.skip(f"the original client cannot be installed here: {lines[-1]}")
