"""Model servers to measure: ours and others', each a process of its own with what it starts."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from load.machine import memory_mb
from peers.having import Absent, folder_of, version_of

from cloud_ml.engines.local.processes import proctree
from serving.queries import OIP, TFS, V1, V2

_READY_S = 90.0
_TICK = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Kind:
    """A server: its name, the protocols it is asked by, and where its own JSON is asked."""

    name: str
    ways: tuple[str, ...]
    path: str = ""


OURS = Kind("ours", (TFS, OIP, V1, V2))
OTHERS = {
    "mosec": Kind("mosec", (V1,), "/inference"),
    "litserve": Kind("LitServe", (V1,), "/predict"),
    "bentoml": Kind("BentoML", (V1,), "/predict"),
    "kserve": Kind("KServe", (OIP, V1)),
    "mlserver": Kind("MLServer", (OIP, V2)),
    "nvidia-pytriton": Kind("pytriton", (OIP,)),
}


class Running:
    """A server that answers, and all processes below it."""

    def __init__(self, process: subprocess.Popen[bytes], http: int, grpc: int) -> None:
        self._process = process
        self.http = http
        self.grpc = grpc

    @property
    def tree(self) -> list[int]:
        return [self._process.pid, *proctree.descendants(self._process.pid)]

    def cpu_s(self) -> float:
        """Processor time of the whole tree, threads and children that ended included.

        Those of the first process are known by the tick only.
        """
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        total = sum(map(int, fields[13:15])) * _TICK
        for pid in self.tree:
            with contextlib.suppress(OSError):
                total += time.clock_gettime(~pid << 3 | 2)  # its clock: see clock_getcpuclockid(3)
        return total

    def memory_mb(self) -> float:
        return memory_mb(self.tree)


@contextlib.contextmanager
def ours(folder: Path, models: list[str]) -> Iterator[Running]:
    """``cloudml-serve`` with models that lie below ``folder``."""
    port = free_port()
    config = folder / "models.config"
    entries = "".join(
        f'config {{ name: "{name}" base_path: "{folder / name}" }} ' for name in models
    )
    config.write_text(f"model_config_list {{ {entries} }}")
    command = [
        sys.executable,
        "-m",
        "cloud_ml.serving",
        "--port",
        str(port),
        "--model_config_file",
        str(config),
    ]
    with _running(command, port, port) as running:
        yield running


@contextlib.contextmanager
def theirs(peer: str, file: Path) -> Iterator[Running]:
    """Another's server with one model.

    Raises:
        Absent: it cannot be had here.
    """
    python = folder_of(peer) / "bin" / "python"
    http, grpc = free_port(), free_port()
    program = Path(__file__).parent / "on" / f"on_{peer.rpartition('-')[2]}.py"
    with _running(
        [str(python), str(program), str(file), str(http), str(grpc)], http, grpc
    ) as running:
        yield running


@contextlib.contextmanager
def _running(command: list[str], *ports: int) -> Iterator[Running]:
    with tempfile.TemporaryDirectory(prefix="cloudml-bench-") as home:
        environment = {
            "HOME": home,
            "TMPDIR": home,
            "PATH": f"{Path(command[0]).parent}:/usr/bin:/bin",
            "OMP_NUM_THREADS": "1",
            "BENTOML_DO_NOT_TRACK": "1",
            # Triton loads the interpreter's library
            "LD_LIBRARY_PATH": str(sysconfig.get_config_var("LIBDIR")),
        }
        output = Path(home, "output")
        with output.open("wb") as log:
            process = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=home,
                env=environment,
                start_new_session=True,
            )
        running = Running(process, ports[0], ports[-1])
        try:
            if not _listens(process, ports):
                raise Absent(
                    "it did not start: " + output.read_text(errors="replace")[-600:].strip()
                )
            yield running
        finally:
            _end(running, process)


def _listens(process: subprocess.Popen[bytes], ports: tuple[int, ...]) -> bool:
    """Whether something answers on the first of its ports; the second may not be used."""
    until = time.monotonic() + _READY_S
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", ports[0]), 1):
            return True
        time.sleep(0.1)
    return False


def _end(running: Running, process: subprocess.Popen[bytes]) -> None:
    left = running.tree
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10)
    for pid in left:
        proctree.send(pid, signal.SIGKILL)
    process.wait()


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def version(peer: str) -> str:
    """A peer's name with the version that is measured."""
    return f"{OTHERS[peer].name} {version_of(peer)}"
